package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/client"
)

// setAside is the commands for one of the two places where failed jobs stand: dead letters and
// quarantine.
func (a *app) setAside(use, name string) *cobra.Command {
	s := &setAsideCommands{app: a, use: use, name: name}
	return a.group(use, "Inspect, redrive and purge "+name+" jobs",
		"Jobs that cannot succeed stand in a queue's "+name+" subqueue until they are redriven or purged.",
		s.list(), s.peek(), s.redrive(), s.purge())
}

type setAsideCommands struct {
	app       *app
	use, name string
}

func (s *setAsideCommands) of(queue string) (client.SetAside, error) {
	api, err := s.app.client()
	if err != nil {
		return client.SetAside{}, err
	}
	if s.use == "dlq" {
		return api.DeadLetters(queue), nil
	}
	return api.Quarantine(queue), nil
}

// filterFlags select set-aside jobs.
type filterFlags struct {
	app           *app
	queue         string
	filter        forebay.SetAsideFilter
	before, after string
}

func (s *setAsideCommands) filterFlags(c *cobra.Command) *filterFlags {
	f := &filterFlags{app: s.app}
	s.queueFlag(c, &f.queue)
	c.Flags().StringSliceVar(&f.filter.JobIDs, "job", nil, "only these job ids")
	c.Flags().StringVar(&f.filter.Task, "task", "", "only of this task")
	c.Flags().StringVar(&f.filter.Reason, "reason", "", "only with this reason, such as MaxAttemptsExceeded")
	c.Flags().StringVar(&f.filter.CorrelationID, "correlation-id", "", "only with this correlation id")
	c.Flags().StringVar(&f.before, "before", "", "only set aside before this time, or longer ago than this")
	c.Flags().StringVar(&f.after, "after", "", "only set aside since this time, or in the last so much time")
	return f
}

func (s *setAsideCommands) queueFlag(c *cobra.Command, queue *string) {
	c.Flags().StringVar(queue, "queue", forebay.DefaultQueue, "the queue")
}

// get returns the filter, and whether it selects something in particular.
func (f *filterFlags) get() (filter forebay.SetAsideFilter, selects bool, err error) {
	filter = f.filter
	if len(filter.JobIDs) == 0 {
		filter.JobIDs = nil
	}
	if filter.Before, err = f.app.parseTime("before", f.before, true); err != nil {
		return filter, false, err
	}
	if filter.After, err = f.app.parseTime("after", f.after, true); err != nil {
		return filter, false, err
	}
	selects = filter.JobIDs != nil || filter.Task != "" || filter.Reason != "" || filter.CorrelationID != "" || filter.Before != nil || filter.After != nil
	return filter, selects, nil
}

// selection wants either something in particular, by flags or by name, or everything.
func (f *filterFlags) selection(jobs []string, everything bool) (filter forebay.SetAsideFilter, err error) {
	f.filter.JobIDs = append(f.filter.JobIDs, jobs...)
	filter, selects, err := f.get()
	switch {
	case err != nil:
	case selects && everything:
		err = usagef("--all and a selection exclude each other")
	case !selects && !everything:
		err = usagef("name jobs, select them by flags, or say --all")
	}
	return filter, err
}

// none is the error when jobs were named and not one of them was there.
func (s *setAsideCommands) none(f *filterFlags) error {
	if len(f.filter.JobIDs) == 1 {
		return &failure{exitNotFound, fmt.Sprintf("%s is not a %s job of queue %s that the selection matches", f.filter.JobIDs[0], s.name, f.queue)}
	}
	return &failure{exitNotFound, fmt.Sprintf("none of the %d named jobs is a %s job of queue %s that the selection matches", len(f.filter.JobIDs), s.name, f.queue)}
}

func (s *setAsideCommands) list() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List " + s.name + " jobs, newest first", Args: arguments(0),
		Example: fmt.Sprintf("  forebay %s list --reason MaxAttemptsExceeded --after 24h", s.use),
	}
	f := s.filterFlags(c)
	c.Flags().IntVar(&limit, "limit", forebay.DefaultPageSize, "at most this many; 0: all")
	c.RunE = func(c *cobra.Command, _ []string) error {
		filter, _, err := f.get()
		if err != nil {
			return err
		}
		if err := checkLimit(limit); err != nil {
			return err
		}
		place, err := s.of(f.queue)
		if err != nil {
			return err
		}
		return ofQueue(printList(s.app, place.List(c.Context(), filter, pageSize(limit)), limit, []column[forebay.SetAsideJob]{
			{"JOB", func(j forebay.SetAsideJob) string { return j.JobID }},
			{"TASK", func(j forebay.SetAsideJob) string { return j.Task }},
			{"REASON", func(j forebay.SetAsideJob) string { return j.Reason }},
			{"ATTEMPTS", func(j forebay.SetAsideJob) string { return strconv.Itoa(j.Attempt) }},
			{"DELIVERIES", func(j forebay.SetAsideJob) string { return strconv.Itoa(j.DeliveryCount) }},
			{"SINCE", func(j forebay.SetAsideJob) string { return s.app.age(j.SetAsideAt) }},
			{"DESCRIPTION", func(j forebay.SetAsideJob) string { return shorten(j.Description, 60) }},
		}))
	}
	return c
}

func (s *setAsideCommands) peek() *cobra.Command {
	var queue string
	c := &cobra.Command{
		Use: "peek JOB_ID", Short: "Show one " + s.name + " job with its input, and leave it there", Args: arguments(1, "JOB_ID"),
		Example: fmt.Sprintf("  forebay %s peek job_0123456789abcdefghjkmnpqrs -o json", s.use),
		RunE: func(c *cobra.Command, args []string) error {
			place, err := s.of(queue)
			if err != nil {
				return err
			}
			job, err := place.Peek(c.Context(), args[0])
			if err != nil {
				return ofQueue(err)
			}
			return s.print(job)
		},
	}
	s.queueFlag(c, &queue)
	return c
}

func (s *setAsideCommands) print(j forebay.SetAsideJob) error {
	rows := [][2]string{
		{"job", j.JobID},
		{"task", j.Task},
		{"queue", j.Queue},
		{"reason", j.Reason},
		{"description", shorten(j.Description, 400)},
		{"error class", string(j.ErrorClass)},
		{"generation", strconv.Itoa(j.Generation)},
		{"attempts", strconv.Itoa(j.Attempt)},
		{"deliveries", strconv.Itoa(j.DeliveryCount)},
		{"correlation id", j.CorrelationID},
		{"created", s.app.when(j.CreatedAt)},
		{"set aside", s.app.when(j.SetAsideAt)},
		{"input bytes", strconv.FormatInt(j.InputBytes, 10)},
	}
	for _, name := range slices.Sorted(maps.Keys(j.Metadata)) {
		rows = append(rows, [2]string{"metadata " + name, shorten(j.Metadata[name], 200)})
	}
	for _, name := range slices.Sorted(maps.Keys(j.Properties)) {
		rows = append(rows, [2]string{"property " + name, shorten(j.Properties[name], 200)})
	}
	rows = append(rows, [2]string{"input", shorten(string(j.Input), 400)})
	return s.app.printOne(j, rows)
}

func (s *setAsideCommands) redrive() *cobra.Command {
	var req forebay.RedriveRequest
	var everything bool
	var inputFile, inputText, task string
	var isJSON bool
	var attempts int
	c := &cobra.Command{
		Use:   "redrive [JOB_ID...]",
		Short: "Send " + s.name + " jobs back as their next generation",
		Long: `Send ` + s.name + ` jobs back to their queue as their next generation. Name the jobs, select them by
flags, or say --all. --dry-run only counts. With exactly one job its input, task or attempts may be
changed.`,
		Example: fmt.Sprintf(`  forebay %[1]s redrive --reason MaxAttemptsExceeded --dry-run
  forebay %[1]s redrive --all --rate 5
  forebay %[1]s redrive job_0123456789abcdefghjkmnpqrs --set-input-file corrected.txt`, s.use),
	}
	f := s.filterFlags(c)
	flags := c.Flags()
	flags.BoolVar(&everything, "all", false, "redrive everything in the subqueue")
	flags.BoolVar(&req.DryRun, "dry-run", false, "only say what would be redriven")
	flags.Float64Var(&req.RatePerSecond, "rate", 0, "new starts a second; 0: at once")
	flags.IntVar(&req.Max, "max", 0, "at most this many; 0: all selected")
	flags.StringVar(&inputText, "set-input", "", "one job: replace the input")
	flags.StringVar(&inputFile, "set-input-file", "", "one job: replace the input by a file's content, JSON if its name ends in .json; - is standard input")
	flags.BoolVar(&isJSON, "json", false, "the new input is JSON, not text")
	flags.StringVar(&task, "set-task", "", "one job: replace the task")
	flags.IntVar(&attempts, "set-max-attempts", 0, "one job: replace the number of attempts")
	c.RunE = func(c *cobra.Command, args []string) error {
		filter, err := f.selection(args, everything)
		if err != nil {
			return err
		}
		req.Filter, req.All = filter, everything
		if req.Edit, err = s.app.edit(c, inputText, inputFile, isJSON, task, attempts); err != nil {
			return err
		}
		if req.Edit != nil && len(filter.JobIDs) != 1 {
			return usagef("only exactly one job can be changed")
		}
		place, err := s.of(f.queue)
		if err != nil {
			return err
		}
		report, err := place.Redrive(c.Context(), req)
		if err != nil {
			return ofQueue(err)
		}
		if len(filter.JobIDs) > 0 && report.Matched == 0 {
			return s.none(f)
		}
		return s.app.printRedrive(report)
	}
	return c
}

func (a *app) edit(c *cobra.Command, inputText, inputFile string, isJSON bool, task string, attempts int) (*forebay.RedriveEdit, error) {
	var e forebay.RedriveEdit
	changed := c.Flags().Changed
	data, given := []byte(inputText), changed("set-input")
	if inputFile != "" {
		if given {
			return nil, usagef("give the new input once: by --set-input or --set-input-file")
		}
		var err error
		if data, err = a.readFile(c.Context(), inputFile, maxInputBytes); err != nil {
			return nil, err
		}
		given, isJSON = true, isJSON || namesJSON(inputFile)
	}
	if given {
		var err error
		if e.Input, err = asInput(data, isJSON); err != nil {
			return nil, err
		}
	}
	e.Task = task
	if changed("set-max-attempts") {
		e.MaxAttempts = &attempts
	}
	if !given && task == "" && e.MaxAttempts == nil {
		return nil, nil
	}
	return &e, nil
}

func (a *app) printRedrive(r forebay.RedriveReport) error {
	rows := [][2]string{{"matched", strconv.Itoa(r.Matched)}}
	if r.DryRun {
		rows = append(rows, [2]string{"redriven", "0 (dry run)"})
	} else {
		rows = append(rows, [2]string{"redriven", strconv.Itoa(r.Redriven)}, [2]string{"skipped", strconv.Itoa(r.Skipped)})
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		rows = append(rows, [2]string{"  " + reason, strconv.Itoa(r.Reasons[reason])})
	}
	return a.printOne(r, rows)
}

func (s *setAsideCommands) purge() *cobra.Command {
	var everything bool
	c := &cobra.Command{
		Use:     "purge [JOB_ID...]",
		Short:   "Remove " + s.name + " jobs for good",
		Long:    "Remove " + s.name + " jobs for good. Name the jobs, select them by flags, or say --all. The job records stay.",
		Example: fmt.Sprintf("  forebay %[1]s purge --before 30d\n  forebay %[1]s purge --queue slow --all", s.use),
	}
	f := s.filterFlags(c)
	c.Flags().BoolVar(&everything, "all", false, "purge everything in the subqueue")
	c.RunE = func(c *cobra.Command, args []string) error {
		filter, err := f.selection(args, everything)
		if err != nil {
			return err
		}
		place, err := s.of(f.queue)
		if err != nil {
			return err
		}
		report, err := place.Purge(c.Context(), filter)
		if err != nil {
			return ofQueue(err)
		}
		if len(filter.JobIDs) > 0 && report.Purged == 0 {
			return s.none(f)
		}
		return s.app.printOne(report, [][2]string{{"purged", strconv.Itoa(report.Purged)}})
	}
	return c
}
