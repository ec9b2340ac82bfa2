// Package oidc lets people sign in to the dashboard by an OpenID Connect provider, such as
// Microsoft Entra ID. It is the relying party of the authorization code flow with PKCE (OpenID
// Connect Core 1.0 section 3.1, RFC 7636). The provider's answer names roles; the configuration
// says what each role may do.
//
// # What protects it
//
// A sign-in begins in one browser. Its state, nonce and code verifier are in a cookie there,
// sealed with a key that comes from the client's secret. All processes with that secret can open
// it. An answer counts only together with the cookie that began it, within ten minutes. The ID
// token must be signed by the provider, for this client, with that nonce.
//
// Whoever is refused learns no more than what to do next. The reason is in the log and the audit
// log, of which refused strangers can fill only so much.
package oidc
