package forebay

// Workflow is a declared workflow of the configuration. It is started as an orchestration of the
// same name.
type Workflow struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Version     string         `json:"version" doc:"digest of its text"`
	Steps       []WorkflowStep `json:"steps" doc:"in the order of its text"`
	// Text is its YAML, as the server has read it. Lists leave it out.
	Text string `json:"text,omitempty" doc:"its YAML; lists leave it out"`
}

// WorkflowStep is a step of a workflow. Its edges lead from the steps of After to it.
type WorkflowStep struct {
	Name            string   `json:"name"`
	Task            string   `json:"task"`
	After           []string `json:"after" doc:"the steps that it waits for, by their results or by name"`
	Conditional     bool     `json:"conditional,omitempty" doc:"it is skipped if its condition is false"`
	ForEach         bool     `json:"for_each,omitempty" doc:"the task is called for each item of a list"`
	Parallel        int      `json:"parallel,omitempty" doc:"how many items at once; 0: it has no list"`
	ContinueOnError bool     `json:"continue_on_error,omitempty" doc:"its failure is no failure of the workflow"`
	Queue           string   `json:"queue,omitempty" doc:"of its jobs; absent: the task's"`
	Priority        *int     `json:"priority,omitempty" doc:"of its jobs"`
	MaxAttempts     *int     `json:"max_attempts,omitempty" doc:"of its jobs"`
	MaxCostUSD      *Money   `json:"max_cost_usd,omitempty" doc:"of each of its jobs"`
	MaxTotalTokens  *int64   `json:"max_total_tokens,omitempty" doc:"of each of its jobs"`
	TimeoutSeconds  float64  `json:"timeout_seconds,omitempty" doc:"of each call; 0: none"`
}
