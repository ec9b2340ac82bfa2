package main

import (
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
)

// sessionCommands are about the sessions of a queue that requires them.
func (a *app) sessionCommands() []*cobra.Command {
	return []*cobra.Command{
		a.sessionsList(), a.sessionAccept(),
		a.renewCommand("renew-session QUEUE SESSION_TOKEN", "Hold a session for another lock duration",
			func(c *call) (time.Time, error) { return c.messages().RenewSession(c.ctx, c.args[1]) }),
		a.sessionState(), a.sessionSetState(),
		aboutQueue(a.apiCommand(&cobra.Command{Use: "close-session QUEUE SESSION_TOKEN", Short: "Give a session back"},
			func(c *call) error { return c.messages().CloseSession(c.ctx, c.args[1]) })),
	}
}

func (a *app) sessionsList() *cobra.Command {
	return aboutQueue(pageCommand(a, &cobra.Command{
		Use: "sessions QUEUE", Short: "List the sessions of a queue that requires them",
		Example: "  forebay messages sessions steps --limit 20",
	}, func(c *call, _ int) iter.Seq2[forebay.SessionInfo, error] { return c.messages().Sessions(c.ctx) },
		func(s forebay.SessionInfo) []field {
			return []field{
				{"SESSION", s.SessionID}, {"MESSAGES", yes(s.HasMessages, "yes")},
				{"LOCKED UNTIL", a.whenPtr(s.LockedUntil)},
				{"STATE", yes(s.StateBytes > 0, strconv.Itoa(s.StateBytes)+" bytes")},
			}
		}))
}

func (a *app) sessionAccept() *cobra.Command {
	var req forebay.AcceptSessionRequest
	c := showCommand(a, &cobra.Command{
		Use: "accept-session QUEUE", Short: "Accept a session, to have its messages to oneself",
		Example: "  forebay messages accept-session steps --wait 20s",
	}, func(c *call) (forebay.Session, error) {
		session, found, err := c.messages().AcceptSession(c.ctx, req)
		if err == nil && !found {
			err = &failure{exitNotFound, "no session has messages"}
		}
		return session, err
	}, func(s forebay.Session) []field {
		return []field{
			{"session", s.SessionID},
			{"session token", s.SessionToken},
			{"locked until", a.when(s.LockedUntil)},
			{"state", yes(s.State != nil, strconv.Itoa(len(s.State))+" bytes")},
		}
	})
	c.Flags().StringVar(&req.SessionID, "session-id", "", "this session (default: the one that has waited longest)")
	secondsFlag(c.Flags(), &req.WaitSeconds, "wait", 0, "wait for a session with messages, up to 1m")
	return aboutQueue(c)
}

func (a *app) sessionState() *cobra.Command {
	return aboutQueue(a.apiCommand(&cobra.Command{
		Use: "get-state QUEUE SESSION_TOKEN", Short: "Print the state of an accepted session",
		Long: `Print the state that the receivers of the session last set, as it is. With -o json it is in
base64. Nothing is printed when there is none.`,
		Example: "  forebay messages get-state steps AAAAAAAAAAFb2V0aGluZyBlbHNl > state.bin",
	}, func(c *call) error {
		state, err := c.messages().SessionState(c.ctx, c.args[1])
		if err != nil {
			return err
		}
		if a.output != outputTable {
			return a.printJSON(forebay.SessionState{State: state})
		}
		_, err = a.out.Write(state)
		return err
	}))
}

func (a *app) sessionSetState() *cobra.Command {
	var state content
	var clearing bool
	c := a.apiCommand(&cobra.Command{
		Use: "set-state QUEUE SESSION_TOKEN", Short: "Set the state of an accepted session",
		Long: "Keep a state of up to 256 KiB for the receivers of the session, later ones too.",
		Example: `  forebay messages set-state steps TOKEN --state '{"done":3}'
  forebay messages set-state steps TOKEN --file -
  forebay messages set-state steps TOKEN --clear`,
	}, func(c *call) error {
		data, given, err := state.read(c, forebay.MaxSessionStateBytes)
		if err != nil {
			return err
		}
		const one = "give one of --state, --file, --clear"
		if err := exactlyOne(one, one, given, clearing); err != nil {
			return err
		}
		if len(data) > forebay.MaxSessionStateBytes {
			return usagef("the state has more than %d bytes", forebay.MaxSessionStateBytes)
		}
		return c.messages().SetSessionState(c.ctx, c.args[1], data)
	})
	state.add(c.Flags(), "state", "state", "file", "the state, as text")
	c.Flags().BoolVar(&clearing, "clear", false, "have no state any more")
	return aboutQueue(c)
}
