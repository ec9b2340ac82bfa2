package audit

import (
	"context"

	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// stores are those that the tests of this package need.
type stores struct {
	DB    *db.DB
	Audit *Store
}

// outside is a database whose audit log is written by Forebay and by others.
type outside = dbtest.Outside[*stores]

var fixture = dbtest.Fixture[*stores]{
	Open: func(ctx context.Context, opts db.Options) (*stores, error) {
		s := &stores{Audit: &Store{}}
		var err error
		s.DB, err = db.Open(ctx, opts, s.Audit)
		return s, err
	},
	DB:     func(s *stores) *db.DB { return s.DB },
	Parked: func(*stores, *db.Tx) int { return 0 },
}
