package atom

import (
	"strings"
	"testing"
)

func TestDurationsInEveryForm(t *testing.T) {
	const day = 24 * 60 * 60
	for text, want := range map[string]float64{
		"PT45S": 45, "PT1M": 60, "PT60M0S": 3600, "PT61M1S": 3661, "PT0M1S": 1, "PT6H": 6 * 3600, "P1D": day, "P14D": 14 * day, "P1DT2H3M4.5S": day + 7384.5,
		"P1W": 7 * day, "P2W1D": 15 * day, "P1Y": 365 * day, "P1M": 30 * day, "P1Y2M3W4D": (365 + 60 + 21 + 4) * day, "PT0.5H": 1800, "PT1,5M": 90, "P0.5D": day / 2,
		"PT0S": 0, "P0D": 0, "PT0.0000001S": 1e-7, "PT0.00000001S": 0, "PT1.2345678901S": 1.2345678, "PT00000000000000000000000000000000000001S": 1,
	} {
		got, err := parseDuration(text)
		if err != nil || got != ofSeconds(want) {
			t.Errorf("%s is %v s (%v), expected %v", text, got.seconds(), err, want)
		}
	}
	for _, text := range []string{"P10675199DT2H48M5.4775807S", "PT256204778H48M5.4775807S", "P99999999999999999999999D", "P30000Y", "PT9223372036854775807S", "P10675199DT2H48M5.4775808S", "P10675198DT99H"} {
		if got, err := parseDuration(text); err != nil || got != forever {
			t.Errorf("%s is %v (%v), expected forever", text, got, err)
		}
	}
	for _, text := range []string{"", "P", "PT", "P1", "PT1", "1S", "T1S", "P1S", "PT1D", "PT1S1M", "PT1M1M", "P1DT", "-PT1S", "P-1D", "PT1.S", "PT.5S", "PT1.5.5S", "PT1.5M1S", "P0.5DT1S", "PT1e5S", "PT1H ", "pt1s",
		"00:01:00", "P1Y2", "PT١S", "P" + strings.Repeat("0", 80) + "1D"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestDurationsAreWrittenAsTheServiceWritesThem(t *testing.T) {
	for text, want := range map[string]string{
		"PT60M0S": "PT1H", "PT45S": "PT45S", "PT86400S": "P1D", "P7DT0S": "P7D", "PT1.50S": "PT1.5S", "PT60.5S": "PT1M0.5S", "PT0S": "PT0S", "P1DT0.0000001S": "P1DT0.0000001S",
		"PT256204778H48M5.4775807S": "P10675199DT2H48M5.4775807S", "PT3661S": "PT1H1M1S",
	} {
		if got, err := parseDuration(text); err != nil || got.String() != want {
			t.Errorf("%s becomes %s (%v), expected %s", text, got, err, want)
		}
	}
	if got := orForever(nil); got != "P10675199DT2H48M5.4775807S" {
		t.Errorf("forever is %s", got)
	}
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"PT45S", "P1Y2M3W4DT5H6M7.8S", "P10675199DT2H48M5.4775807S", "PT0,5H", "P"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseDuration(text)
		if err != nil {
			return
		}
		again, err := parseDuration(got.String())
		if got < 0 || err != nil || again != got {
			t.Errorf("%q is %d ticks, %s, which is %d ticks (%v)", text, got, got, again, err)
		}
	})
}
