package jobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/bench/embedded"
	"github.com/forebayhq/forebay/bench/measure"
	"github.com/forebayhq/forebay/server"
)

// slowestPage is how long a page of the dashboard may take, in milliseconds.
const slowestPage = 200

// Pages measures every page of the dashboard over many jobs, on both databases.
func Pages(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	jobs := b.Size(1_000_000, 50_000)
	t := measure.Table{
		Title: "Pages of the dashboard",
		Text: fmt.Sprintf(`A database with %s finished jobs of 1 KiB and %s that wait, half of them scheduled. Every page of the navigation, and the first
three pages that each of these links to, is asked for over HTTP, one after the other. The slowest five of each database have
a row. Bytes are those of the HTML, not compressed.`, measure.Format(float64(jobs)), measure.Format(float64(jobs))),
		Columns: []string{"p50 ms", "bytes"},
	}
	on, err := measure.Engines(ctx, b)
	if err != nil {
		return t, err
	}
	slowest := map[string]float64{}
	for _, name := range measure.EngineNames {
		rows, err := pagesOn(ctx, b, on[name], name, jobs)
		if err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
		median := func(r measure.Row) float64 { mid, _, _ := r.Spread("p50 ms"); return mid }
		slices.SortFunc(rows, func(x, y measure.Row) int { return int(1000 * (median(y) - median(x))) })
		slowest[name] = median(rows[0])
		bytes := 0.0
		for _, r := range rows {
			_, _, most := r.Spread("bytes")
			bytes = max(bytes, most)
		}
		t.Note("%s: %d pages, the largest of %s bytes", name, len(rows), measure.Format(bytes))
		t.Rows = append(t.Rows, rows[:min(5, len(rows))]...)
	}
	for _, name := range measure.EngineNames {
		t.Expect("the slowest page in ms, "+name, slowest[name], "≤", slowestPage)
	}
	return t, nil
}

// pagesOn fills a database and returns a row for each page.
func pagesOn(ctx context.Context, b *measure.Bench, on measure.Engine, engine string, jobs int) (rows []measure.Row, err error) {
	e, err := embedded.StartAs(ctx, b, on, withPages)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	begun := time.Now()
	if err := e.RunMany(ctx, jobs); err != nil {
		return nil, err
	}
	if err := (loadedForebay{e}).fill(ctx, present, jobs); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "  %s: filled in %.0f s\n", engine, time.Since(begun).Seconds())
	base := fmt.Sprintf("http://%s/ui", e.Addr(ctx))
	paths, err := crawl(ctx, base)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		r := measure.Row{Name: engine + " " + shape(path)}
		for range 2 * b.Rounds {
			took, _, n, err := page(ctx, base+path)
			if err != nil {
				return nil, err
			}
			r.Samples = append(r.Samples, measure.Sample{"p50 ms": took.Seconds() * 1000, "bytes": float64(n)})
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// withPages lets a server listen, and gives it what the pages show.
func withPages(o *server.Options) {
	o.Role, o.Listen = server.RoleAll, "127.0.0.1:0"
	o.Queues[otherQueue] = server.Queue{Concurrency: 1}
	o.Functions = append(o.Functions, forebay.Task{Name: "hold", Run: func(ctx context.Context, _ forebay.TaskCall) (forebay.TaskResult, error) {
		<-ctx.Done() // keeps the queue's one worker busy
		return forebay.TaskResult{}, ctx.Err()
	}})
}

var (
	linked = regexp.MustCompile(`href="/ui(/[^"#]*)"`)
	named  = regexp.MustCompile(`\b(job|msg|orc|batch|resp|doc|wh|key|prc)_[0-9a-z]+`)
)

// shape is a page's address without the ids in it.
func shape(path string) string {
	path, query, _ := strings.Cut(named.ReplaceAllString(path, "…"), "?")
	if query != "" {
		path += "?" + query[:min(len(query), 30)]
	}
	return "/ui" + path
}

// crawl returns the pages of the navigation, and of each the first three that it links to.
func crawl(ctx context.Context, base string) ([]string, error) {
	_, first, _, err := page(ctx, base+"/")
	if err != nil {
		return nil, err
	}
	paths := []string{"/"}
	add := func(html string, most int) {
		for _, m := range linked.FindAllStringSubmatch(html, -1) {
			path := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.HasPrefix(path, "/assets/") || strings.HasPrefix(path, "/live") || most == 0 ||
				slices.ContainsFunc(paths, func(p string) bool { return p == path || shape(p) == shape(path) }) {
				continue
			}
			paths = append(paths, path)
			most--
		}
	}
	add(first, 100)
	for _, path := range slices.Clone(paths) {
		_, html, _, err := page(ctx, base+path)
		if err != nil {
			return nil, err
		}
		_, main, _ := strings.Cut(html, "<main")
		add(main, 3)
	}
	return paths, nil
}

// page fetches one, which must be there.
func page(ctx context.Context, address string) (took time.Duration, html string, bytes int, err error) {
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, "", 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, "", 0, fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	return time.Since(begun), string(body), len(body), nil
}

// openTabs are the pages that somebody has open while jobs are measured.
var openTabs = []string{"/", "/backlog", "/calls", "/jobs", "/deployments", "/usage", "/orchestrations", "/batches", "/queues", "/processes"}

// Tabs measures what open pages cost the jobs.
func Tabs(ctx context.Context, b *measure.Bench) (measure.Table, error) {
	const without, with = "no page open", "ten pages open"
	t := measure.Table{
		Title: "Ten open pages of the dashboard",
		Text: `The full life of a 1 KiB job on SQLite, in process, without a page and with ten open ones. Each follows its stream of changes, and is
fetched again when it is told to, as a browser does. Those who read the pages share the process, and the processor.`,
		Columns: []string{measure.JobRate, "enqueue p99 ms", "CPU µs/job", "pages fetched"},
	}
	err := t.TakeTurns(ctx, b.Rounds,
		measure.Contender{Name: without, Round: func(ctx context.Context) (measure.Sample, error) { return lifeBeside(ctx, b, nil) }},
		measure.Contender{Name: with, Round: func(ctx context.Context) (measure.Sample, error) { return lifeBeside(ctx, b, openTabs) }})
	if err != nil {
		return t, err
	}
	t.Expect("share of the rate without", t.Median(with, measure.JobRate)/t.Median(without, measure.JobRate), "≥", 0.95)
	return t, nil
}

// lifeBeside is a round of life beside open pages.
func lifeBeside(ctx context.Context, b *measure.Bench, open []string) (s measure.Sample, err error) {
	e, err := embedded.StartAs(ctx, b, b.SQLite(), withPages)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	base := fmt.Sprintf("http://%s/ui", e.Addr(ctx))
	watching, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	var fetched atomic.Int64
	failed := make(chan error, len(open))
	for _, path := range open {
		readers.Go(func() {
			if err := watch(watching, base, path, &fetched); err != nil && watching.Err() == nil {
				failed <- fmt.Errorf("page %s: %w", path, err)
			}
		})
	}
	s, err = e.Live(ctx, b.Size(80_000, 20_000))
	stop()
	readers.Wait()
	close(failed)
	for f := range failed {
		err = errors.Join(err, f)
	}
	if s != nil {
		s["pages fetched"] = float64(fetched.Load())
	}
	return s, err
}

// watch keeps a page open: it fetches it again whenever its stream says so.
func watch(ctx context.Context, base, path string, fetched *atomic.Int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/live?page="+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if lines.Text() != "event: change" {
			continue
		}
		if _, _, _, err := page(ctx, base+path); err != nil {
			return err
		}
		fetched.Add(1)
	}
	return nil
}
