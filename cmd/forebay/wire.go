package main

import (
	"context"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// keyService works on a database's API keys, with or without a server running on it.
type keyService interface {
	Create(ctx context.Context, tenant string, scopes []forebay.Scope, expires *time.Time, budget forebay.Budget) (forebay.APIKey, error)
	List(ctx context.Context) ([]forebay.APIKey, error)
	SetBudget(ctx context.Context, id string, budget forebay.Budget) (forebay.APIKey, error)
	Revoke(ctx context.Context, id string) (forebay.APIKey, error)
}

// openService opens a database for its keys. done releases it.
func openService(ctx context.Context, database string) (keys keyService, done func() error, err error) {
	opened, err := server.OpenKeys(ctx, database)
	if err != nil {
		return nil, nil, err
	}
	return opened, opened.Close, nil
}
