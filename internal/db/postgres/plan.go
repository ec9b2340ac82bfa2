package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Forms are the texts of the statements that are registered with the driver, as they run. They
// are the merged writes, and the prefetches that have a form of their own.
func (c *Conn) Forms(ctx context.Context) (all []string, err error) {
	for single, merged := range driver.BatchForms {
		types, err := parametersOf(ctx, c.Pg, single)
		if err != nil {
			return nil, err
		}
		sql, _ := (^columns(0)).with(merged, types)
		all = append(all, sql)
	}
	for single, form := range driver.PrefetchForms {
		types, err := parametersOf(ctx, c.Pg, single)
		if err != nil {
			return nil, err
		}
		args := make([]driver.Argument, len(types))
		for i, t := range types {
			if t == pgtype.TextOID {
				args[i].Kind = driver.KindText
			}
		}
		all = append(all, overParameters(form, args))
	}
	return all, nil
}

// parametersOf are the types of a statement's parameters, which the server knows.
func parametersOf(ctx context.Context, pg *pgconn.PgConn, sql string) ([]uint32, error) {
	const name = "forebay_form"
	translated, _ := translate(sql)
	description, err := pg.Prepare(ctx, name, translated, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, sql)
	}
	for i, t := range description.ParamOIDs {
		if _, known := arrays[t]; !known {
			description.ParamOIDs[i] = pgtype.Int8OID
		}
	}
	return description.ParamOIDs, pg.Deallocate(ctx, name)
}

// Kinds are the kinds of a statement's parameters.
func Kinds(ctx context.Context, c *Conn, sql string) (kinds []driver.Kind, err error) {
	types, err := parametersOf(ctx, c.Pg, sql)
	for _, t := range types {
		switch t {
		case pgtype.TextOID:
			kinds = append(kinds, driver.KindText)
		case pgtype.ByteaOID:
			kinds = append(kinds, driver.KindBytes)
		default:
			kinds = append(kinds, driver.KindInt)
		}
	}
	return kinds, err
}

// AheadForms are the texts as which a connection has asked queries ahead, in no order.
func AheadForms(c *Conn) []string { return slices.Collect(maps.Values(c.forms)) }

// AheadForm is the text as which queries of that kind run together.
func AheadForm(q driver.Prefetch) string { return aheadForm(q.SQL, q.Args[:q.N]) }

// Plan is how the server would run a statement, step by step, whatever its parameters are.
func (c *Conn) Plan(ctx context.Context, sql string) (steps []string, err error) {
	sql, _ = translate(sql)
	const name = "forebay_plan"
	description, err := c.Pg.Prepare(ctx, name, sql, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, sql)
	}
	explain := "EXPLAIN (COSTS OFF) EXECUTE " + name
	if n := len(description.ParamOIDs); n > 0 {
		explain += "(" + strings.Repeat("NULL, ", n-1) + "NULL)"
	}
	results, err := c.Pg.Exec(ctx, explain+"; DEALLOCATE "+name).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, sql)
	}
	for _, row := range results[0].Rows {
		steps = append(steps, string(row[0]))
	}
	return steps, nil
}

// Waiting is how many statements wait to be sent.
func Waiting(c *Conn) int { return len(c.pending.groups) }
