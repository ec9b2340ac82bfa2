// Package measure is what all benchmarks share: contenders that take turns, and the table of what
// was measured. It has the databases, and says what a process and the disk have done meanwhile.
package measure

// Bench is how to measure.
type Bench struct {
	Dir    string // for databases; removed at the end
	Rounds int
	Quick  bool
	Peers  bool // measure the yardsticks too

	Waiting int // jobs, where rates beside others are measured; 0: several amounts

	CPUProfile string // file; "": none
	LiteLLM    string // program; "": it is not measured
	RabbitMQ   string // program; where it is not there, it is not measured

	pg *PostgresEngine // nil until it is needed
}

// Size is how much to do: less when it must be quick.
func (b *Bench) Size(full, quick int) int {
	if b.Quick {
		return quick
	}
	return full
}
