package request

import (
	"encoding/json"
	"fmt"

	"github.com/forebayhq/forebay"
)

// FilterDetail is what the audit log keeps of a filter.
func FilterDetail(f forebay.SetAsideFilter) string {
	b, err := json.Marshal(f)
	if err != nil || len(b) > 2000 {
		return fmt.Sprintf(`{"job_ids":"%d ids"}`, len(f.JobIDs))
	}
	return string(b)
}
