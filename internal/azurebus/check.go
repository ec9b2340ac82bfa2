package azurebus

import (
	"context"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Check connects to the service and looks whether the source could receive. It takes no message.
func (s *Source) Check(ctx context.Context) error {
	client, err := s.Connection.Open()
	if err != nil {
		return err
	}
	defer shut(ctx, client)
	if s.Sessions > 0 {
		session, err := acceptNext(ctx, client, s.From, checkAccept)
		if session != nil {
			shut(ctx, session)
		}
		return explained(err)
	}
	r, err := receiverOf(client, s.From)
	if err != nil {
		return err
	}
	defer shut(ctx, r)
	_, err = r.PeekMessages(ctx, 1, nil)
	return explained(err)
}

// checkAccept is how long a check waits for a session. That none comes is fine.
const checkAccept = closeTime

// Check connects to the service and looks whether the sink could send. It sends nothing.
func (s *Sink) Check(ctx context.Context) error {
	client, err := s.Connection.Open()
	if err != nil {
		return err
	}
	defer shut(ctx, client)
	sender, err := client.NewSender(s.To, nil)
	if err != nil {
		return err
	}
	defer shut(ctx, sender)
	return explained(s.try(ctx, sender))
}

// explained puts what an operator can do before the client's own words.
func explained(err error) error {
	if err == nil {
		return nil
	}
	why := map[string]string{
		string(azservicebus.CodeUnauthorizedAccess): "the service refuses the credentials, or they lack a right",
		string(azservicebus.CodeNotFound):           "there is no such entity",
		string(azservicebus.CodeConnectionLost):     "the service cannot be reached",
		string(azservicebus.CodeTimeout):            "the service does not answer",
	}[codeOf(err)]
	text := strings.ReplaceAll(short(err), "\n", " ")
	if why != "" {
		text = why + ": " + text
	}
	return errors.New(text)
}
