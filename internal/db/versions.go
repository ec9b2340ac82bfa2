package db

import (
	"context"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/db/sqlite"
)

// Schema compares a database's tables with those that this program needs.
type Schema struct {
	Database int64    `json:"database"` // version; 0: there is no Forebay database there yet
	Program  int64    `json:"program"`
	Pending  []string `json:"pending"` // scripts that the database lacks, in order
}

// ReadSchema looks at a database without making or changing anything, also while others use it.
func ReadSchema(ctx context.Context, opts Options) (Schema, error) {
	s := Schema{Program: schema.Latest(), Pending: []string{}}
	var err error
	if opts.URL != "" {
		s.Database, err = postgres.SchemaVersion(ctx, opts.URL)
	} else {
		s.Database, err = sqlite.SchemaVersion(opts.Path)
	}
	for _, name := range schema.ScriptsFrom(s.Database) {
		s.Pending = append(s.Pending, schema.ScriptName(name))
	}
	return s, err
}

// refuseUnlessCurrent refuses a schema that is not this program's.
func (s Schema) refuseUnlessCurrent() error {
	switch {
	case s.Database == 0:
		return forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no Forebay database there yet")
	case s.Database >= schema.Oldest && s.Database < s.Program:
		return forebay.Errorf(forebay.CodeDatabaseUnusable,
			"the database has an older schema (%d; this Forebay's is %d); bring it up to date with forebay migrate up", s.Database, s.Program)
	}
	return schema.RefuseUnknown("the database", s.Database)
}
