package forebay

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Money is an amount of US dollars in nano-dollars (1e-9 USD). In JSON it is a decimal number of
// dollars.
type Money int64

// Dollar is one US dollar.
const Dollar Money = 1_000_000_000

// USD returns the amount nearest to the given dollars.
func USD(dollars float64) Money { return Money(math.Round(dollars * float64(Dollar))) }

// Dollars returns the amount in dollars.
func (m Money) Dollars() float64 { return float64(m) / float64(Dollar) }

// String returns the amount as dollars without trailing zeros, such as "0.0125".
func (m Money) String() string {
	sign, n := "", uint64(m)
	if m < 0 {
		sign, n = "-", uint64(-m)
	}
	whole, fraction := n/uint64(Dollar), n%uint64(Dollar)
	if fraction == 0 {
		return sign + strconv.FormatUint(whole, 10)
	}
	return sign + strconv.FormatUint(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%09d", fraction), "0")
}

// MarshalJSON writes a decimal number of dollars, exactly.
func (m Money) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON reads a number of dollars, up to a billion either way.
func (m *Money) UnmarshalJSON(b []byte) error {
	dollars, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(math.Abs(dollars) <= 1e9) { // NaN compares as false
		return fmt.Errorf("an amount of US dollars is a number of at most a billion, not %.40q", b)
	}
	*m = USD(dollars)
	return nil
}
