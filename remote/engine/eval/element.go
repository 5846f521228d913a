package eval

import (
	"math"

	"github.com/prometheus/prometheus/promql/parser"
)

// An operation makes a value of a value, or drops it.
type operation func(v float64) (result float64, keep bool)

// apply applies op at each step. It does not know histograms.
func (c *column) apply(op operation) error {
	if c.histograms != nil {
		return errUnknown
	}
	for i, has := range c.has {
		if has {
			c.values[i], c.has[i] = op(c.values[i])
		}
	}
	return nil
}

// simpleFunctions are functions of PromQL that make a float of each float.
var simpleFunctions = map[string]func(float64) float64{
	"abs": math.Abs, "ceil": math.Ceil, "floor": math.Floor, "sqrt": math.Sqrt,
	"exp": math.Exp, "ln": math.Log, "log2": math.Log2, "log10": math.Log10,
}

// always makes an operation of a function.
func always(fn func(float64) float64) operation {
	return func(v float64) (float64, bool) { return fn(v), true }
}

func negate(v float64) float64 { return -v }

// binary returns the operation of a binary operator between elements and a number. If
// numberFirst is set, the number is on the left. drops says that results have no name.
func binary(e *parser.BinaryExpr, number float64, numberFirst bool) (op operation, drops, ok bool) {
	if fn := arithmetic(e.Op); fn != nil {
		if numberFirst {
			return always(func(v float64) float64 { return fn(number, v) }), true, true
		}
		return always(func(v float64) float64 { return fn(v, number) }), true, true
	}
	fn := comparison(e.Op)
	if fn == nil {
		return nil, false, false
	}
	return func(v float64) (float64, bool) {
		left, right := v, number
		if numberFirst {
			left, right = number, v
		}
		switch keep := fn(left, right); {
		case !e.ReturnBool:
			return v, keep
		case keep:
			return 1, true
		}
		return 0, true
	}, e.ReturnBool, true
}

func arithmetic(op parser.ItemType) func(a, b float64) float64 {
	switch op {
	case parser.ADD:
		return func(a, b float64) float64 { return a + b }
	case parser.SUB:
		return func(a, b float64) float64 { return a - b }
	case parser.MUL:
		return func(a, b float64) float64 { return a * b }
	case parser.DIV:
		return func(a, b float64) float64 { return a / b }
	case parser.POW:
		return math.Pow
	case parser.MOD:
		return math.Mod
	case parser.ATAN2:
		return math.Atan2
	}
	return nil
}

func comparison(op parser.ItemType) func(a, b float64) bool {
	switch op {
	case parser.EQLC:
		return func(a, b float64) bool { return a == b }
	case parser.NEQ:
		return func(a, b float64) bool { return a != b }
	case parser.GTR:
		return func(a, b float64) bool { return a > b }
	case parser.LSS:
		return func(a, b float64) bool { return a < b }
	case parser.GTE:
		return func(a, b float64) bool { return a >= b }
	case parser.LTE:
		return func(a, b float64) bool { return a <= b }
	}
	return nil
}
