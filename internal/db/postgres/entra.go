package postgres

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/forebayhq/forebay"
	"github.com/jackc/pgx/v5/pgconn"
)

// Azure Database for PostgreSQL takes a token of Microsoft Entra ID for a password. A token ends
// after an hour or so. The server looks at it only as a connection begins.

const (
	entraParameter = "entra_id" // of the database URL
	entraScope     = "https://ossrdbms-aad.database.windows.net/.default"
)

// tokens returns the password for one connection.
type tokens func(context.Context) (string, error)

// entraTokens are those of the environment's identity, which keeps a token until it ends.
func entraTokens(config *pgconn.Config) (tokens, error) {
	if !secret(config) {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable,
			"%s sends a token that must stay secret: add sslmode=verify-full to the database URL", entraParameter)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no identity of Microsoft Entra ID in the environment").Caused(err)
	}
	return func(ctx context.Context) (string, error) {
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{entraScope}})
		if err != nil {
			return "", forebay.Errorf(forebay.CodeDatabaseUnusable, "there is no token of Microsoft Entra ID for the database").Caused(err)
		}
		return token.Token, nil
	}, nil
}

// secret reports whether nobody between here and the server can read what is sent.
func secret(config *pgconn.Config) bool {
	ways := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	for _, way := range ways {
		if network, _ := pgconn.NetworkAddress(way.Host, way.Port); network != "unix" && way.TLSConfig == nil {
			return false
		}
	}
	return true
}
