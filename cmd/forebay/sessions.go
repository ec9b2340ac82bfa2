package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

func (a *app) sessionsList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "sessions QUEUE", Short: "List the sessions of a queue that requires them", Args: arguments(1, "QUEUE"),
		Example: "  forebay messages sessions steps --limit 20",
	}
	c.Flags().IntVar(&limit, "limit", forebay.DefaultPageSize, "at most this many; 0: all")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkLimit(limit); err != nil {
			return err
		}
		queue, err := a.messagesOf(args[0])
		if err != nil {
			return err
		}
		return ofQueue(printList(a, queue.Sessions(c.Context()), limit, []column[forebay.SessionInfo]{
			{"SESSION", func(s forebay.SessionInfo) string { return s.SessionID }},
			{"MESSAGES", func(s forebay.SessionInfo) string { return yes(s.HasMessages, "yes") }},
			{"LOCKED UNTIL", func(s forebay.SessionInfo) string {
				if s.LockedUntil == nil {
					return ""
				}
				return a.when(*s.LockedUntil)
			}},
			{"STATE", func(s forebay.SessionInfo) string { return yes(s.StateBytes > 0, strconv.Itoa(s.StateBytes)+" bytes") }},
		}))
	}
	return c
}

// sessionCommand does something with an accepted session.
func (a *app) sessionCommand(use, short string, run func(c *cobra.Command, queue client.Messages, token string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " QUEUE SESSION_TOKEN", Short: short, Args: arguments(2, "QUEUE", "SESSION_TOKEN"),
		Example: "  forebay messages " + use + " steps AAAAAAAAAAFb2V0aGluZyBlbHNl",
		RunE: func(c *cobra.Command, args []string) error {
			queue, err := a.messagesOf(args[0])
			if err != nil {
				return err
			}
			return ofQueue(run(c, queue, args[1]))
		},
	}
}

func (a *app) sessionClose() *cobra.Command {
	return a.sessionCommand("close-session", "Give a session back", func(c *cobra.Command, queue client.Messages, token string) error {
		return queue.CloseSession(c.Context(), token)
	})
}

func (a *app) sessionRenew() *cobra.Command {
	return a.sessionCommand("renew-session", "Hold a session for another lock duration", func(c *cobra.Command, queue client.Messages, token string) error {
		until, err := queue.RenewSession(c.Context(), token)
		if err != nil {
			return err
		}
		return a.printOne(map[string]time.Time{"locked_until": until}, [][2]string{{"locked until", a.when(until)}})
	})
}

func (a *app) sessionState() *cobra.Command {
	c := a.sessionCommand("get-state", "Print the state of an accepted session", func(c *cobra.Command, queue client.Messages, token string) error {
		state, err := queue.SessionState(c.Context(), token)
		if err != nil {
			return err
		}
		if a.output != outputTable {
			return a.printOne(forebay.SessionState{State: state}, nil)
		}
		_, err = a.out.Write(state)
		return err
	})
	c.Long = "Print what the receivers of the session last set, as it is; with -o json in base64. Nothing is printed when there is none."
	c.Example += " > state.bin"
	return c
}

func (a *app) sessionSetState() *cobra.Command {
	var text, file string
	var clearing bool
	c := a.sessionCommand("set-state", "Set the state of an accepted session", func(c *cobra.Command, queue client.Messages, token string) error {
		if err := oneFlag(c, "state", "file", "clear"); err != nil {
			return err
		}
		state := []byte(text)
		switch {
		case clearing:
			state = nil
		case c.Flags().Changed("file"):
			var err error
			if state, err = a.readFile(c.Context(), file, forebay.MaxSessionStateBytes); err != nil {
				return err
			}
		}
		if len(state) > forebay.MaxSessionStateBytes {
			return usagef("the state has more than %d bytes", forebay.MaxSessionStateBytes)
		}
		return queue.SetSessionState(c.Context(), token, state)
	})
	c.Long = "Keep a state, up to 256 KiB, for the receivers of the session, those that come later too."
	c.Example = `  forebay messages set-state steps TOKEN --state '{"done":3}'
  forebay messages set-state steps TOKEN --file -
  forebay messages set-state steps TOKEN --clear`
	c.Flags().StringVar(&text, "state", "", "the state, as text")
	c.Flags().StringVar(&file, "file", "", "the state from a file; - is standard input")
	c.Flags().BoolVar(&clearing, "clear", false, "have no state any more")
	return c
}
