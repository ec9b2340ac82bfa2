package azurebus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"

	"github.com/forebayhq/forebay"
)

// Connection says how a namespace is reached. It has either a connection string or a namespace.
type Connection struct {
	ConnectionString forebay.Secret
	// Namespace is NAME.servicebus.windows.net, with Entra ID by DefaultAzureCredential.
	Namespace string
	// Endpoint is host:port to connect to instead of the namespace's own; "": that.
	Endpoint  string
	CAs       *x509.CertPool // nil: those of the machine
	WebSocket bool           // AMQP over a WebSocket, port 443
}

var errConnectionString = errors.New("this is no connection string of Service Bus, which names " +
	"Endpoint, SharedAccessKeyName and SharedAccessKey")

const (
	closeTime   = 5 * time.Second
	connectTime = 30 * time.Second
)

// Open returns a client. It connects once it is used, so an error says what is wrong with the
// connection's settings.
func (c Connection) Open() (*azservicebus.Client, error) {
	secure := &tls.Config{RootCAs: c.CAs, MinVersion: tls.VersionTLS12}
	// A connector begins anew after an error, so the client repeats an operation once only, on
	// another link.
	opts := &azservicebus.ClientOptions{TLSConfig: secure, ApplicationID: "forebay", CustomEndpoint: c.Endpoint,
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 1, RetryDelay: 500 * time.Millisecond}}
	if c.WebSocket {
		opts.CustomEndpoint = ""
		opts.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return c.dialWebSocket(ctx, args.Host, secure)
		}
	}
	if c.ConnectionString != "" {
		client, err := azservicebus.NewClientFromConnectionString(c.ConnectionString.Reveal(), opts)
		if err != nil {
			// Its text could quote a part of the secret.
			return nil, errConnectionString
		}
		return client, nil
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return azservicebus.NewClient(c.Namespace, credential, opts)
}

func (c Connection) dialWebSocket(ctx context.Context, host string, secure *tls.Config) (net.Conn, error) {
	if c.Endpoint != "" {
		host = "wss://" + c.Endpoint
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = secure
	conn, _, err := websocket.Dial(ctx, host, &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: &http.Client{Transport: transport}}) //nolint:bodyclose // the library says that it need not be closed
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1) // frames of AMQP have a limit of their own
	return websocket.NetConn(context.WithoutCancel(ctx), conn, websocket.MessageBinary), nil
}

// closer is a client, a receiver or a sender.
type closer interface {
	Close(ctx context.Context) error
}

// shut closes something of the client's, also after ctx has ended. What fails then does not
// matter: the service sees the connection end.
func shut(ctx context.Context, c closer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	_ = c.Close(ctx)
}

// errLinkLost says that a receiver's link ended. The service ends links that it wants to move, and
// those of entities that were disabled.
var errLinkLost = errors.New("the link to the service was lost")

// codeOf is a short and stable name of a failure, for logs and metrics.
func codeOf(err error) string {
	var service *azservicebus.Error
	switch {
	case errors.As(err, &service):
		return string(service.Code)
	case errors.Is(err, errLinkLost):
		return string(azservicebus.CodeConnectionLost)
	case errors.Is(err, context.DeadlineExceeded):
		return string(azservicebus.CodeTimeout)
	}
	return string(forebay.CodeOf(err)) // internal, if it is none of ours
}

// unlessLost ignores a lock that has ended: whoever gets the message next goes on.
func unlessLost(err error) error {
	var service *azservicebus.Error
	if errors.As(err, &service) && service.Code == azservicebus.CodeLockLost {
		return nil
	}
	return err
}
