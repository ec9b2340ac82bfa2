// Package workflow reads declared workflows, checks them and plans their calls.
//
// A workflow is a YAML file of steps. Each step calls a task once, or once for every item of a
// list. A step waits for the steps whose results its expressions use. [Parse] returns a
// [Definition], or every problem of the text with its line and column. [Definition.Check]
// compares it with the existing tasks. A [Run] is the state of an instance. It is told in which
// order calls have ended and says which begin next, always the same for the same order. The
// package does no input or output, reads no clock and draws no random numbers, so an orchestrator
// can replay it.
package workflow

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
)

// The limits of a workflow.
const (
	MaxBytes       = 64 << 10 // of its text
	MaxSteps       = 100
	MaxItems       = 1000 // of a list that a step goes through
	MaxParallel    = 100
	maxDepth       = 20    // of lists and objects in an input or output
	maxValues      = 2000  // in one input or output
	maxExpression  = 4_000 // bytes
	maxNodes       = 200   // of an expression
	maxTimeout     = 30 * 24 * time.Hour
	maxDescription = 500 // bytes

	defaultParallel = 10
)

// Definition is a workflow that has been read.
type Definition struct {
	Name        string
	Description string
	Steps       []*Step // as they stand in the text
	Version     string  // of the text: the same text has the same
	Text        string

	file   string
	output *template // nil: the results by step
}

// Step is one step of a workflow.
type Step struct {
	Name            string
	Task            string
	Options         Options
	ContinueOnError bool  // its failure is no failure of the workflow
	After           []int // numbers of the steps that it waits for

	at, taskAt, queueAt Position
	after               []*yaml.Node // named by after
	condition           *expression  // nil: always
	each                *template    // nil: the task is called once
	parallel            int
	input               *template // nil: the item, or the workflow's input
}

// Options are what a step may set on its jobs besides their input.
type Options struct {
	Queue          string
	Priority       *int
	MaxAttempts    *int
	MaxCostUSD     *forebay.Money
	MaxTotalTokens *int64
	Timeout        time.Duration // of each call, from when its job is made to its end; 0: none
}

// Position is a place in a text. Both numbers begin at 1.
type Position struct{ Line, Column int }

// Problem is something wrong with a text.
type Problem struct {
	File string
	Position
	Message string
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems is everything that is wrong with a text, one a line.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}
