package workflow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
)

// Parse reads a workflow. The error is Problems, which call the text file.
func Parse(file string, text []byte) (*Definition, error) {
	p := &parser{file: file}
	if len(text) > MaxBytes {
		p.bad(Position{1, 1}, "the workflow has %d bytes; the limit is %d", len(text), MaxBytes)
		return nil, p.problems
	}
	p.lines = strings.Split(string(text), "\n")
	sum := sha256.Sum256(text)
	d := &Definition{Version: hex.EncodeToString(sum[:6]), Text: string(text), file: file}
	if root := p.document(text); root != nil {
		p.definition(d, root)
	}
	if len(p.problems) == 0 {
		p.link(d)
	}
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b Problem) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		return nil, p.problems
	}
	return d, nil
}

type parser struct {
	file     string
	lines    []string
	problems Problems
}

func (p *parser) bad(at Position, format string, args ...any) {
	p.problems = append(p.problems, Problem{p.file, at, fmt.Sprintf(format, args...)})
}

func positionOf(n *yaml.Node) Position { return Position{n.Line, n.Column} }

// lineOf matches the line number in the YAML parser's messages.
var lineOf = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

func (p *parser) document(text []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		p.bad(Position{1, 1}, "the workflow is empty")
		return nil
	case err != nil:
		at, message := Position{1, 1}, err.Error()
		if m := lineOf.FindStringSubmatch(message); m != nil {
			at.Line, _ = strconv.Atoi(m[1])
			message = message[len(m[0]):]
		}
		p.bad(at, "is no YAML: %s", strings.TrimPrefix(message, "yaml: "))
		return nil
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		p.bad(Position{max(second.Line, 1), 1}, "is more than one YAML document")
		return nil
	}
	root := document.Content[0]
	if !p.plain(root, 0) {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		p.bad(positionOf(root), "a workflow is a mapping: workflow, steps, output")
		return nil
	}
	return root
}

// plain refuses YAML that makes a text other than it looks, and nesting that is too deep.
func (p *parser) plain(n *yaml.Node, depth int) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		p.bad(positionOf(n), "anchors and aliases are not supported")
	case n.Kind == yaml.MappingNode && slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Tag == "!!merge" }):
		p.bad(positionOf(n), "merge keys are not supported")
	case depth > 2*maxDepth:
		p.bad(positionOf(n), "is too deep")
	default:
		return !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !p.plain(c, depth+1) })
	}
	return false
}

// entries returns the keys and values of a mapping, each key once.
func (p *parser) entries(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			switch line := seen[key.Value]; {
			case key.Kind != yaml.ScalarNode:
				p.bad(positionOf(key), "a key must be a text")
			case line > 0:
				p.bad(positionOf(key), "%.80q stands in line %d already", key.Value, line)
			default:
				seen[key.Value] = key.Line
				if !yield(key, n.Content[i+1]) {
					return
				}
			}
		}
	}
}

func (p *parser) definition(d *Definition, root *yaml.Node) {
	var steps *yaml.Node
	for key, value := range p.entries(root) {
		switch key.Value {
		case "workflow":
			d.Name = p.text(value)
			if len(p.problems) == 0 && !forebay.ValidName(d.Name) {
				p.bad(positionOf(value), "%.80q cannot name a workflow: 1 to 64 letters, digits, '.', '_' or '-'", d.Name)
			}
		case "description":
			d.Description = p.text(value)
			if len(d.Description) > maxDescription {
				p.bad(positionOf(value), "is longer than %d bytes", maxDescription)
			}
		case "steps":
			steps = value
		case "output":
			d.output = (&templates{parser: p}).read(value, 1)
		default:
			p.bad(positionOf(key), "unknown key %.80q; a workflow has workflow, description, steps, output", key.Value)
		}
	}
	if d.Name == "" && len(p.problems) == 0 {
		p.bad(positionOf(root), "workflow is missing: the workflow's name")
	}
	switch {
	case steps == nil:
		p.bad(positionOf(root), "steps is missing")
	case steps.Kind != yaml.MappingNode || len(steps.Content) == 0:
		p.bad(positionOf(steps), "steps is a mapping of at least one name to a step")
	case len(steps.Content) > 2*MaxSteps:
		p.bad(positionOf(steps), "there are %d steps; the limit is %d", len(steps.Content)/2, MaxSteps)
	default:
		for key, value := range p.entries(steps) {
			if s := p.step(key, value); s != nil {
				d.Steps = append(d.Steps, s)
			}
		}
	}
}

// stepName is what steps are called, so that expressions can name them.
var stepName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

const stepKeys = "task, for_each, parallel, input, if, after, continue_on_error, timeout, max_attempts, max_cost_usd, max_total_tokens, priority, queue"

func (p *parser) step(key, value *yaml.Node) *Step {
	s := &Step{Name: key.Value, at: positionOf(key), parallel: defaultParallel}
	if !stepName.MatchString(s.Name) {
		p.bad(s.at, "%.80q cannot name a step: 1 to 64 letters, digits and '_', no digit first", s.Name)
	}
	if value.Kind != yaml.MappingNode {
		p.bad(positionOf(value), "a step is a mapping: %s", stepKeys)
		return nil
	}
	fields := map[string]*yaml.Node{}
	for name, field := range p.entries(value) {
		if !slices.Contains(strings.Split(stepKeys, ", "), name.Value) {
			p.bad(positionOf(name), "unknown key %.80q; a step has %s", name.Value, stepKeys)
			continue
		}
		fields[name.Value] = field
	}
	if fields["task"] == nil {
		p.bad(s.at, "step %s has no task", s.Name)
	}
	if fields["parallel"] != nil && fields["for_each"] == nil {
		p.bad(positionOf(fields["parallel"]), "parallel is for steps with for_each")
	}
	for _, name := range strings.Split(stepKeys, ", ") {
		if field := fields[name]; field != nil {
			p.field(s, name, field)
		}
	}
	return s
}

func (p *parser) field(s *Step, name string, n *yaml.Node) {
	o := &s.Options
	switch name {
	case "task":
		s.Task, s.taskAt = p.text(n), positionOf(n)
	case "queue":
		o.Queue, s.queueAt = p.text(n), positionOf(n)
	case "for_each":
		s.each = p.list(n)
	case "parallel":
		s.parallel = int(p.integer(n, 1, MaxParallel))
	case "input":
		s.input = (&templates{parser: p, item: s.each != nil}).read(n, 1)
	case "if":
		if e, ok := p.expression(p.text(n), p.inside(n, 0), false); ok {
			s.condition = e
		}
	case "after":
		s.after = p.names(n)
	case "continue_on_error":
		if n.ShortTag() != "!!bool" || n.Decode(&s.ContinueOnError) != nil {
			p.bad(positionOf(n), "must be true or false")
		}
	case "timeout":
		d, err := time.ParseDuration(p.text(n))
		if o.Timeout = d; err != nil || d < time.Second || d > maxTimeout {
			p.bad(positionOf(n), "must be a duration like 30s, 10m or 2h, from 1s to %dh", maxTimeout/time.Hour)
		}
	case "max_attempts":
		v := int(p.integer(n, 1, forebay.MaxAttemptsLimit))
		o.MaxAttempts = &v
	case "priority":
		v := int(p.integer(n, 0, 9))
		o.Priority = &v
	case "max_cost_usd":
		var dollars float64
		if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" || n.Decode(&dollars) != nil || !(dollars >= 0) || math.IsInf(dollars, 0) {
			p.bad(positionOf(n), "must be a number of US dollars")
			return
		}
		var m forebay.Money
		if raw, err := json.Marshal(dollars); err != nil || json.Unmarshal(raw, &m) != nil {
			p.bad(positionOf(n), "is not an amount of US dollars")
		}
		o.MaxCostUSD = &m
	case "max_total_tokens":
		v := p.integer(n, 1, forebay.MaxTotalTokens)
		o.MaxTotalTokens = &v
	}
}

// list reads what a step runs over: an expression, or a list.
func (p *parser) list(n *yaml.Node) *template {
	switch n.Kind {
	case yaml.SequenceNode:
		return (&templates{parser: p}).read(n, 1)
	case yaml.ScalarNode:
		e, ok := p.expression(p.text(n), p.inside(n, 0), false)
		if !ok {
			return &template{at: positionOf(n)}
		}
		return &template{at: positionOf(n), parts: []part{{expression: e}}}
	}
	p.bad(positionOf(n), "must be an expression that gives a list, or a list")
	return nil
}

func (p *parser) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || strings.TrimSpace(n.Value) == "" {
		p.bad(positionOf(n), "must be a text")
		return ""
	}
	return n.Value
}

func (p *parser) integer(n *yaml.Node, from, to int64) (v int64) {
	if n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < from || v > to {
		p.bad(positionOf(n), "must be a whole number from %d to %d", from, to)
	}
	return v
}

func (p *parser) expression(text string, at Position, item bool) (*expression, bool) {
	if strings.TrimSpace(text) == "" {
		p.bad(at, "the expression is empty")
		return nil, false
	}
	if strings.HasPrefix(strings.TrimSpace(text), "${") {
		p.bad(at, "an expression stands here without ${ and }")
		return nil, false
	}
	e, problem := compile(text, at, item)
	if problem != nil {
		p.bad(problem.Position, "%s", problem.Message)
		return nil, false
	}
	return e, true
}

// inside is the position of a byte of a scalar's value. For texts that YAML folds or unescapes it
// is where the scalar begins.
func (p *parser) inside(n *yaml.Node, offset int) Position {
	before := n.Value[:offset]
	runes := len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		line := n.Line + 1 + strings.Count(before, "\n")
		indent := 0
		if first := line - 1; first < len(p.lines) {
			indent = len(p.lines[first]) - len(strings.TrimLeft(p.lines[first], " "))
		}
		return Position{line, indent + runes + 1}
	case n.Style&yaml.FoldedStyle != 0, strings.Contains(n.Value, "\n"), !p.oneLine(n):
		return positionOf(n)
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return Position{n.Line, n.Column + 1 + runes}
	}
	return Position{n.Line, n.Column + runes}
}

// oneLine reports whether the text holds a scalar's value unchanged.
func (p *parser) oneLine(n *yaml.Node) bool {
	return n.Line >= 1 && n.Line <= len(p.lines) && strings.Contains(p.lines[n.Line-1], n.Value)
}
