package standin_test

import (
	"fmt"
	"time"

	"github.com/forebayhq/forebay/internal/standin"
)

// A meter and a script need no server and no clock: a simulation drives them through two hours.
func ExampleMeter() {
	script, err := standin.NamedScript("reference")
	if err != nil {
		panic(err)
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := standin.NewMeter(standin.Quota{Kind: standin.KindAzure, TokensPerMinute: 240_000}, begin)
	admitted, refused := 0, 0
	for second := range 7200 {
		now := begin.Add(time.Duration(second) * time.Second)
		c := script.At(now.Sub(begin))
		m.SetFactor(now, c.Quota, c.QuotaShown)
		switch {
		case c.Outage:
		case m.Admit(now, standin.Cost{Prompt: 3000, Output: 1000}).Admitted:
			admitted++
		default:
			refused++
		}
	}
	fmt.Println(admitted, "admitted,", refused, "refused")
	// Output: 6660 admitted, 360 refused
}
