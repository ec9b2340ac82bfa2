package workflow

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"github.com/forebayhq/forebay"
)

// The names that an expression may use.
const (
	nameInput = "input"
	nameSteps = "steps"
	nameItem  = "item"
	nameIndex = "index"
)

// functions are the library's functions that expressions may call. Each takes time and memory in
// proportion to its arguments, needs nothing from outside and always gives the same result.
// Functions over an object's keys are left out because their order is random. The library bounds
// neither time nor the size of texts, so functions that multiply are refused or, as join, our
// own.
var functions = []string{
	"all", "any", "one", "none", "filter", "map", "count", "sum", "len", "first", "last", "split", "trim", "upper", "lower",
	"hasPrefix", "hasSuffix", "indexOf", "min", "max", "abs", "ceil", "floor", "round", "int", "float", "string", "type", "concat", "flatten",
}

// maxText bounds what join and replace make, in bytes.
const maxText = 16 << 20

var errText = errors.New("makes a text that is too large")

// join joins the texts of a list by a separator.
func join(arguments ...any) (any, error) {
	texts, ok := arguments[0].([]string)
	list, isList := arguments[0].([]any)
	for _, v := range list {
		s, isText := v.(string)
		texts, isList = append(texts, s), isList && isText
	}
	if !ok && !isList {
		return nil, errors.New("join takes a list of texts")
	}
	separator := arguments[1].(string)
	var b strings.Builder
	for i, s := range texts {
		if i > 0 {
			b.WriteString(separator)
		}
		if b.WriteString(s); b.Len() > maxText {
			return nil, errText
		}
	}
	return b.String(), nil
}

// replace replaces every occurrence of a text within another.
func replace(arguments ...any) (any, error) {
	s, from, to := arguments[0].(string), arguments[1].(string), arguments[2].(string)
	if len(s)+strings.Count(s, from)*max(len(to)-len(from), 0) > maxText {
		return nil, errText
	}
	return strings.ReplaceAll(s, from, to), nil
}

// toJSON writes a value as JSON in one line.
func toJSON(arguments ...any) (any, error) {
	raw, err := forebay.EncodeJSON(arguments[0])
	return string(raw), err
}

// fromJSON reads JSON as the workflow's input is read. The library's own takes all numbers for
// floating-point ones, so that long ids change.
func fromJSON(arguments ...any) (any, error) {
	raw := json.RawMessage(arguments[0].(string))
	if !json.Valid(raw) {
		return nil, errors.New("fromJSON takes JSON")
	}
	return decodeValue(raw)
}

// own are the names of ownFunctions.
var own = []string{"join", "replace", "toJSON", "fromJSON"}

var ownFunctions = []expr.Option{
	expr.Function("join", join, new(func(any, string) string)),
	expr.Function("replace", replace, new(func(string, string, string) string)),
	expr.Function("toJSON", toJSON, new(func(any) string)),
	expr.Function("fromJSON", fromJSON, new(func(string) any)),
}

// expression is a piece of text that evaluates to a value.
type expression struct {
	program  *vm.Program
	at       Position
	steps    []string // whose results it uses
	stepsAt  []Position
	useInput bool
}

// compile reads an expression at a position. With item, it belongs to a step that runs over a
// list.
func compile(text string, at Position, item bool) (*expression, *Problem) {
	if len(text) > maxExpression {
		return nil, &Problem{Position: at, Message: "the expression is too long"}
	}
	names := types.Map{nameInput: types.Any, nameSteps: types.Any}
	if item {
		names[nameItem], names[nameIndex] = types.Any, types.Int
	}
	look := &visitor{}
	options := []expr.Option{expr.Env(names), expr.MaxNodes(maxNodes), expr.Patch(look), expr.DisableAllBuiltins()}
	options = append(options, ownFunctions...)
	for _, f := range functions {
		options = append(options, expr.EnableBuiltin(f))
	}
	program, err := expr.Compile(text, options...)
	e := &expression{program: program, at: at, useInput: look.input}
	if look.refused != "" {
		return nil, &Problem{Position: within(at, text, look.refusedAt), Message: look.refused}
	}
	if err != nil {
		where, message := at, "the expression cannot be read"
		if f, ok := errors.AsType[*file.Error](err); ok {
			where, message = within(at, text, f.From), f.Message
		}
		return nil, &Problem{Position: where, Message: message}
	}
	if look.bare != look.members {
		return nil, &Problem{Position: within(at, text, look.bareAt), Message: "steps must be followed by the name of a step: steps.NAME.result"}
	}
	for i, name := range look.steps {
		if !slices.Contains(e.steps, name) {
			e.steps, e.stepsAt = append(e.steps, name), append(e.stepsAt, within(at, text, look.stepsAt[i]))
		}
	}
	return e, nil
}

// within is the position of a character of a text that begins at a position.
func within(at Position, text string, offset int) Position {
	for i, r := range []rune(text) {
		if i == offset {
			break
		}
		at.Column++
		if r == '\n' {
			at = Position{at.Line + 1, 1}
		}
	}
	return at
}

// visitor visits the parts of an expression, inner ones first.
type visitor struct {
	input         bool
	bare, members int // how often steps is named, and how often as the owner of a name
	bareAt        int
	steps         []string
	stepsAt       []int
	refused       string
	refusedAt     int
}

// outside reports what would make iterating over a list take more than linear time.
func outside(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.PredicateNode:
		return true
	case *ast.IdentifierNode:
		return n.Value == nameInput || n.Value == nameSteps || n.Value == nameItem
	}
	return false
}

func (v *visitor) refuse(n ast.Node, message string) {
	if v.refused == "" {
		v.refused, v.refusedAt = message, n.Location().From
	}
}

func (v *visitor) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		switch n.Value {
		case nameSteps:
			v.bare++
			v.bareAt = n.Location().From
		case nameInput:
			v.input = true
		case "$env":
			v.refuse(n, "unknown name $env")
		}
	case *ast.MemberNode:
		owner, ok := n.Node.(*ast.IdentifierNode)
		if name, constant := n.Property.(*ast.StringNode); ok && constant && owner.Value == nameSteps {
			v.members++
			v.steps, v.stepsAt = append(v.steps, name.Value), append(v.stepsAt, name.Location().From)
		}
	case *ast.CallNode:
		if f, ok := n.Callee.(*ast.IdentifierNode); !ok || !slices.Contains(own, f.Value) {
			v.refuse(n, "there is no such function")
		}
	case *ast.BinaryNode:
		_, constant := n.Right.(*ast.StringNode)
		switch {
		case n.Operator == "..":
			v.refuse(n, "there are no ranges")
		case n.Operator == "matches" && !constant:
			v.refuse(n, "the pattern of matches must be a constant")
		}
	case *ast.VariableDeclaratorNode:
		v.refuse(n, "variables cannot be declared")
	case *ast.SequenceNode:
		v.refuse(n, "is more than one expression")
	case *ast.PredicateNode:
		if ast.Find(n.Node, outside) != nil {
			v.refuse(n, "what is done for each item of a list can only use the item (# or .NAME) and constants")
		}
	}
}

// evaluate returns the value. An error reveals nothing of the values.
func (e *expression) evaluate(env map[string]any) (any, error) {
	v, err := expr.Run(e.program, env)
	if err != nil {
		return nil, &evaluationError{e.at, withoutValues(err)}
	}
	return v, nil
}

// evaluationError says that an expression, or what contains it, has no value.
type evaluationError struct {
	at      Position
	message string
}

func (e *evaluationError) Error() string { return e.message }

// plain matches the messages about types alone.
var plain = regexp.MustCompile(`^(?:cannot fetch [A-Za-z_][A-Za-z0-9_]{0,63} from (?:<nil>|[\w\[\]{} ]{1,40})|invalid operation: [\w\[\]{} <>]{1,40} [-+*/%<>=!]{1,2} [\w\[\]{} <>]{1,40}|memory budget exceeded|index out of range.*)$`)

func withoutValues(err error) string {
	if f, ok := errors.AsType[*file.Error](err); ok && plain.MatchString(f.Message) {
		return f.Message
	}
	return "the expression cannot be evaluated with these values"
}
