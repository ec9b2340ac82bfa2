package main

import (
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/command"
)

// sessionCommands are the commands about the sessions of a queue that requires them.
type sessionCommands struct{ *command.App }

func (a sessionCommands) all() []*cobra.Command {
	return []*cobra.Command{
		a.list(), a.accept(),
		renewCommand(a.App, "renew-session QUEUE SESSION_TOKEN", "Hold a session for another lock duration",
			func(c *command.Call) (time.Time, error) { return messagesOf(c).RenewSession(c.Ctx, c.Args[1]) }),
		a.state(), a.setState(),
		aboutQueue(a.APICommand(&cobra.Command{Use: "release-session QUEUE SESSION_ID", Short: "Take a session from the receiver that has it"},
			func(c *command.Call) error { return messagesOf(c).ReleaseSession(c.Ctx, c.Args[1]) })),
		aboutQueue(a.APICommand(&cobra.Command{Use: "close-session QUEUE SESSION_TOKEN", Short: "Give a session back"},
			func(c *command.Call) error { return messagesOf(c).CloseSession(c.Ctx, c.Args[1]) })),
	}
}

func (a sessionCommands) list() *cobra.Command {
	return aboutQueue(command.Page(a.App, &cobra.Command{
		Use: "sessions QUEUE", Short: "List the sessions of a queue that requires them",
		Example: "  forebay messages sessions steps --limit 20",
	}, func(c *command.Call, _ int) iter.Seq2[forebay.SessionInfo, error] {
		return messagesOf(c).Sessions(c.Ctx)
	},
		func(s forebay.SessionInfo) []command.Field {
			return []command.Field{
				{"SESSION", s.SessionID}, {"MESSAGES", command.IfTrue(s.HasMessages, "yes")},
				{"LOCKED UNTIL", a.WhenPtr(s.LockedUntil)},
				{"STATE", command.IfTrue(s.StateBytes > 0, strconv.Itoa(s.StateBytes)+" bytes")},
			}
		}))
}

func (a sessionCommands) accept() *cobra.Command {
	var req forebay.AcceptSessionRequest
	c := command.Show(a.App, &cobra.Command{
		Use: "accept-session QUEUE", Short: "Accept a session, to have its messages to oneself",
		Example: "  forebay messages accept-session steps --wait 20s",
	}, func(c *command.Call) (forebay.Session, error) {
		session, found, err := messagesOf(c).AcceptSession(c.Ctx, req)
		if err == nil && !found {
			err = command.ExitError(command.ExitNotFound, "no session has messages")
		}
		return session, err
	}, func(s forebay.Session) []command.Field {
		return []command.Field{
			{"session", s.SessionID},
			{"session token", s.SessionToken},
			{"locked until", a.When(s.LockedUntil)},
			{"state", command.IfTrue(s.State != nil, strconv.Itoa(len(s.State))+" bytes")},
		}
	})
	c.Flags().StringVar(&req.SessionID, "session-id", "", "this session (default: the one that has waited longest)")
	command.WaitFlag(c.Flags(), &req.Wait, "wait for a session with messages, up to 1m")
	return aboutQueue(c)
}

func (a sessionCommands) state() *cobra.Command {
	return aboutQueue(a.APICommand(&cobra.Command{
		Use: "get-state QUEUE SESSION_TOKEN", Short: "Print the state of an accepted session",
		Long: `Print the state that the receivers of the session last set, as it is. With -o json it is in
base64. Nothing is printed when there is none.`,
		Example: "  forebay messages get-state steps AAAAAAAAAAFb2V0aGluZyBlbHNl > state.bin",
	}, func(c *command.Call) error {
		state, err := messagesOf(c).SessionState(c.Ctx, c.Args[1])
		if err != nil {
			return err
		}
		if c.Output != command.OutputTable {
			return c.PrintJSON(forebay.SessionState{State: state})
		}
		_, err = c.Out.Write(state)
		return err
	}))
}

func (a sessionCommands) setState() *cobra.Command {
	var state command.Content
	var clearing bool
	c := a.APICommand(&cobra.Command{
		Use: "set-state QUEUE SESSION_TOKEN", Short: "Set the state of an accepted session",
		Long: "Keep a state of up to 256 KiB for the receivers of the session, later ones too.",
		Example: `  forebay messages set-state steps TOKEN --state '{"done":3}'
  forebay messages set-state steps TOKEN --file -
  forebay messages set-state steps TOKEN --clear`,
	}, func(c *command.Call) error {
		data, given, err := state.Read(c, forebay.MaxSessionStateBytes)
		if err != nil {
			return err
		}
		const one = "give one of --state, --file, --clear"
		if err := command.ExactlyOne(one, one, given, clearing); err != nil {
			return err
		}
		if len(data) > forebay.MaxSessionStateBytes {
			return command.Usagef("the state has more than %d bytes", forebay.MaxSessionStateBytes)
		}
		return messagesOf(c).SetSessionState(c.Ctx, c.Args[1], data)
	})
	state.Add(c.Flags(), "state", "state", "file", "the state, as text")
	c.Flags().BoolVar(&clearing, "clear", false, "have no state any more")
	return aboutQueue(c)
}
