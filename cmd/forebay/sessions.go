package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
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

func (a *app) sessionRenew() *cobra.Command {
	return &cobra.Command{
		Use: "renew-session QUEUE SESSION_TOKEN", Short: "Hold a session for another lock duration", Args: arguments(2, "QUEUE", "SESSION_TOKEN"),
		Example: "  forebay messages renew-session steps AAAAAAAAAAFb2V0aGluZyBlbHNl",
		RunE: func(c *cobra.Command, args []string) error {
			queue, err := a.messagesOf(args[0])
			if err != nil {
				return err
			}
			until, err := queue.RenewSession(c.Context(), args[1])
			if err != nil {
				return ofQueue(err)
			}
			return a.printOne(map[string]time.Time{"locked_until": until}, [][2]string{{"locked until", a.when(until)}})
		},
	}
}

func (a *app) sessionState() *cobra.Command {
	return &cobra.Command{
		Use: "get-state QUEUE SESSION_TOKEN", Short: "Print the state of an accepted session", Args: arguments(2, "QUEUE", "SESSION_TOKEN"),
		Long:    "Print what the receivers of the session last set, as it is; with -o json in base64. Nothing is printed when there is none.",
		Example: "  forebay messages get-state steps AAAAAAAAAAFb2V0aGluZyBlbHNl > state.bin",
		RunE: func(c *cobra.Command, args []string) error {
			queue, err := a.messagesOf(args[0])
			if err != nil {
				return err
			}
			state, err := queue.SessionState(c.Context(), args[1])
			if err != nil {
				return ofQueue(err)
			}
			if a.output != outputTable {
				return a.printOne(forebay.SessionState{State: state}, nil)
			}
			_, err = a.out.Write(state)
			return err
		},
	}
}

func (a *app) sessionSetState() *cobra.Command {
	var text, file string
	var clearing bool
	c := &cobra.Command{
		Use: "set-state QUEUE SESSION_TOKEN", Short: "Set the state of an accepted session", Args: arguments(2, "QUEUE", "SESSION_TOKEN"),
		Long: "Keep a state, up to 256 KiB, for the receivers of the session, those that come later too.",
		Example: `  forebay messages set-state steps TOKEN --state '{"done":3}'
  forebay messages set-state steps TOKEN --file -
  forebay messages set-state steps TOKEN --clear`,
	}
	c.Flags().StringVar(&text, "state", "", "the state, as text")
	c.Flags().StringVar(&file, "file", "", "the state from a file; - is standard input")
	c.Flags().BoolVar(&clearing, "clear", false, "have no state any more")
	c.RunE = func(c *cobra.Command, args []string) error {
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
		queue, err := a.messagesOf(args[0])
		if err != nil {
			return err
		}
		return ofQueue(queue.SetSessionState(c.Context(), args[1], state))
	}
	return c
}
