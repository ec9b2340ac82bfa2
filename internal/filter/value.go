package filter

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/forebayhq/forebay"
)

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case time.Time:
		return "a time"
	case []byte:
		return "bytes"
	case forebay.UUID:
		return "a UUID"
	}
	return "nothing"
}

// compare applies a comparison to two known values.
func compare(op operator, a, b any) (bool, error) {
	a, b, err := promote(a, b)
	if err != nil {
		return false, err
	}
	switch a := a.(type) {
	case int64:
		return ordered(op, a, b.(int64)), nil
	case float64:
		return ordered(op, a, b.(float64)), nil
	case string:
		return ordered(op, a, b.(string)), nil
	case time.Time:
		return ordered(op, a.Compare(b.(time.Time)), 0), nil
	}
	var equal bool
	switch a := a.(type) {
	case bool:
		equal = a == b.(bool)
	case []byte:
		equal = bytes.Equal(a, b.([]byte))
	case forebay.UUID:
		equal = a == b.(forebay.UUID)
	}
	switch op {
	case opEqual:
		return equal, nil
	case opNotEqual:
		return !equal, nil
	}
	return false, evaluationErrorf("%s has no order: %s cannot be asked", typeName(a), op)
}

// ordered compares as C# does, where NaN differs from everything.
func ordered[T cmp.Ordered](op operator, a, b T) bool {
	switch op {
	case opEqual:
		return a == b
	case opNotEqual:
		return a != b
	case opLess:
		return a < b
	case opLessEq:
		return a <= b
	case opMore:
		return a > b
	}
	return a >= b
}

// promote brings two values to one type.
func promote(a, b any) (any, any, error) {
	switch x := a.(type) {
	case int64:
		switch b.(type) {
		case int64:
			return a, b, nil
		case float64:
			return float64(x), b, nil
		}
	case float64:
		switch y := b.(type) {
		case float64:
			return a, b, nil
		case int64:
			return a, float64(y), nil
		}
	case string:
		switch b.(type) {
		case string:
			return a, b, nil
		case time.Time, forebay.UUID:
			converted, err := fromText(x, b)
			return converted, b, err
		}
	case time.Time, forebay.UUID:
		if y, ok := b.(string); ok {
			converted, err := fromText(y, a)
			return a, converted, err
		}
	}
	if typeName(a) != typeName(b) {
		return nil, nil, evaluationErrorf("%s and %s cannot be compared", typeName(a), typeName(b))
	}
	return a, b, nil
}

// fromText reads a string as a value of the type of like.
func fromText(text string, like any) (v any, err error) {
	if _, ok := like.(time.Time); ok {
		v, err = time.Parse(time.RFC3339Nano, text)
	} else {
		v, err = forebay.ParseUUID(text)
	}
	if err != nil {
		return nil, evaluationErrorf("the string that is compared with %s holds none", typeName(like))
	}
	return v, nil
}

// arithmetic applies + - * / % to two known values.
func arithmetic(op operator, a, b any) (any, error) {
	switch x := a.(type) {
	case int64:
		switch y := b.(type) {
		case int64:
			return arithmeticInt(op, x, y)
		case float64:
			return arithmeticFloat(op, float64(x), y), nil
		}
	case float64:
		switch y := b.(type) {
		case float64:
			return arithmeticFloat(op, x, y), nil
		case int64:
			return arithmeticFloat(op, x, float64(y)), nil
		}
	case string:
		if y, ok := b.(string); ok && op == opAdd {
			if len(x)+len(y) > forebay.MaxPropertyBytes {
				return nil, &EvaluationError{fmt.Sprintf("the joined string has more than %d bytes", forebay.MaxPropertyBytes), true}
			}
			return x + y, nil
		}
	}
	return nil, evaluationErrorf("%s and %s do not go with %s", typeName(a), typeName(b), op)
}

func arithmeticFloat(op operator, a, b float64) float64 {
	switch op {
	case opAdd:
		return a + b
	case opSubtract:
		return a - b
	case opMultiply:
		return a * b
	case opDivide:
		return a / b
	}
	return math.Mod(a, b)
}

func arithmeticInt(op operator, a, b int64) (any, error) {
	var v int64
	fits := true
	switch op {
	case opAdd:
		v = a + b
		fits = (v > a) == (b > 0)
	case opSubtract:
		v = a - b
		fits = (v < a) == (b > 0)
	case opMultiply:
		if v = a * b; a != 0 {
			fits = v/a == b && (a != -1 || b != math.MinInt64)
		}
	case opDivide, opModulo:
		if b == 0 {
			return nil, evaluationErrorf("an integer is divided by zero")
		}
		switch {
		case op == opModulo && b == -1:
			v = 0
		case op == opModulo:
			v = a % b
		default:
			v = a / b
			fits = a != math.MinInt64 || b != -1
		}
	}
	if !fits {
		return nil, evaluationErrorf("an integer overflows at %s", op)
	}
	return v, nil
}

// sameValue is the equality of correlation filters: the types must go together, and a mismatch is
// no error.
func sameValue(a, b any) bool {
	if _, ok := a.(string); ok != isString(b) {
		return false
	}
	equal, err := compare(opEqual, a, b)
	return err == nil && equal
}

func isString(v any) bool {
	_, ok := v.(string)
	return ok
}
