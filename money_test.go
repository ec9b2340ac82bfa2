package forebay_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/forebayhq/forebay"
)

func TestMoneyIsWrittenExactly(t *testing.T) {
	for m, want := range map[forebay.Money]string{
		0:                                  "0",
		1:                                  "0.000000001",
		-1:                                 "-0.000000001",
		forebay.Dollar:                     "1",
		-forebay.Dollar:                    "-1",
		12_500_000:                         "0.0125",
		100 * forebay.Dollar:               "100",
		3*forebay.Dollar + 10:              "3.00000001",
		forebay.Money(math.MaxInt64):       "9223372036.854775807",
		forebay.Money(math.MinInt64):       "-9223372036.854775808",
		forebay.USD(0.1) + forebay.USD(.2): "0.3",
	} {
		if got := m.String(); got != want {
			t.Errorf("%d nano-dollars are written %s, want %s", int64(m), got, want)
		}
		b, err := json.Marshal(m)
		if err != nil || string(b) != want {
			t.Errorf("%d nano-dollars are %s in JSON, %v; want %s", int64(m), b, err, want)
		}
	}
}

func TestMoneyRoundsToTheNearestNanoDollar(t *testing.T) {
	for dollars, want := range map[float64]forebay.Money{
		0.0000000004: 0, 0.0000000006: 1, -0.0000000006: -1, 0.1: 100_000_000, 1.005: 1_005_000_000, 1e9: 1e18,
	} {
		if got := forebay.USD(dollars); got != want {
			t.Errorf("USD(%v) is %d, want %d", dollars, got, want)
		}
	}
}

func TestMoneyReadsNumbers(t *testing.T) {
	for in, want := range map[string]forebay.Money{
		"0": 0, "0.5": forebay.Dollar / 2, "1e-9": 1, "-2": -2 * forebay.Dollar, "1E3": 1000 * forebay.Dollar, "1000000000": 1e9 * forebay.Dollar,
	} {
		var got forebay.Money
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s is read as %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{`"1"`, `true`, `{}`, `[]`, `1e10`, `-1e10`, `1e400`, `1000000000.1`} {
		m := forebay.Money(7)
		if err := json.Unmarshal([]byte(in), &m); err == nil || m != 7 {
			t.Errorf("%s is read as %d, %v", in, m, err)
		}
	}
	for _, in := range []string{"NaN", "Inf", "-Infinity", ""} {
		m := forebay.Money(7)
		if err := m.UnmarshalJSON([]byte(in)); err == nil || m != 7 {
			t.Errorf("%q is read as %d, %v", in, m, err)
		}
	}
}

func TestCostOfTokens(t *testing.T) {
	for _, c := range []struct {
		price forebay.Price
		used  forebay.TokenUsage
		want  string
	}{
		{forebay.Price{Input: 2.5, Output: 10}, forebay.TokenUsage{InputTokens: 1_000_000, OutputTokens: 1_000_000}, "12.5"},
		{forebay.Price{Input: 2.5, Output: 10}, forebay.TokenUsage{InputTokens: 1, OutputTokens: 1}, "0.0000125"},
		{forebay.Price{Input: 0.0001}, forebay.TokenUsage{InputTokens: 4}, "0"},
		{forebay.Price{Input: 0.0001}, forebay.TokenUsage{InputTokens: 6}, "0.000000001"},
		{forebay.Price{}, forebay.TokenUsage{InputTokens: math.MaxInt64}, "0"},
		{forebay.Price{Input: 2}, forebay.TokenUsage{}, "0"},
	} {
		if got := c.price.Cost(c.used).String(); got != c.want {
			t.Errorf("%+v at %+v costs %s, want %s", c.used, c.price, got, c.want)
		}
	}
}

// Input from the provider's cache has its own price, if there is one.
func TestCostOfCachedInput(t *testing.T) {
	used := forebay.TokenUsage{InputTokens: 1_000_000, OutputTokens: 100_000}
	priced := forebay.Price{Input: 2.5, Output: 10, CachedInput: 0.25}
	for _, c := range []struct {
		price  forebay.Price
		cached int64
		want   string
	}{
		{priced, 0, "3.5"},
		{priced, 800_000, "1.7"},
		{priced, 1_000_000, "1.25"},
		{priced, 2_000_000, "1.25"},
		{priced, -1, "3.5"},
		{forebay.Price{Input: 2.5, Output: 10}, 800_000, "3.5"},
	} {
		if got := c.price.CostWithCache(used, c.cached, 0).String(); got != c.want {
			t.Errorf("%d cached at %+v cost %s, want %s", c.cached, c.price, got, c.want)
		}
	}
}

// Input that is written to the provider's cache may be dearer. What a limit on costs holds is
// never less than what a call costs.
func TestCostOfCacheWrites(t *testing.T) {
	used := forebay.TokenUsage{InputTokens: 1_000_000, OutputTokens: 100_000}
	priced := forebay.Price{Input: 4, Output: 10, CachedInput: 0.5, CacheWrite: 5}
	for _, c := range []struct {
		price         forebay.Price
		read, written int64
		want          string
	}{
		{priced, 0, 0, "5"},
		{priced, 0, 200_000, "5.2"},
		{priced, 800_000, 200_000, "2.4"},
		{priced, 0, 1_000_000, "6"},
		{priced, 800_000, 900_000, "2.4"},
		{priced, 0, 2_000_000, "6"},
		{priced, 0, -1, "5"},
		{forebay.Price{Input: 4, Output: 10}, 100_000, 200_000, "5"},
		{forebay.Price{Input: 4, Output: 10, CachedInput: 0.5}, 0, 200_000, "5"},
	} {
		got := c.price.CostWithCache(used, c.read, c.written)
		if got.String() != c.want || got > c.price.CostBound(used) {
			t.Errorf("%d read and %d written at %+v cost %s of at most %s, want %s", c.read, c.written, c.price, got, c.price.CostBound(used), c.want)
		}
	}
	if got := (forebay.Price{Input: 4, Output: 10, CacheWrite: 5}).CostBound(used).String(); got != "6" {
		t.Errorf("the bound is %s", got)
	}
}

// Money survives a round trip through JSON: exactly up to two million dollars, and above that as
// near as a float64 comes.
func FuzzMoneyJSON(f *testing.F) {
	for _, m := range []int64{0, 1, -1, 12_500_000, 1 << 51, 1e18, -1e18, math.MaxInt64, math.MinInt64} {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		m := forebay.Money(n)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var back forebay.Money
		err = json.Unmarshal(b, &back)
		switch size := math.Abs(m.Dollars()); {
		case size > 1e9+1 && err == nil:
			t.Fatalf("%s is over the limit and was read", b)
		case size > 1e9-1 && err != nil: // at the limit float64 decides
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		off := math.Abs(float64(back - m))
		if exact := n > -1<<51 && n < 1<<51; (exact && off != 0) || off > math.Abs(float64(n))*0x1p-51 {
			t.Errorf("%d nano-dollars are written %s and read as %d", n, b, int64(back))
		}
	})
}
