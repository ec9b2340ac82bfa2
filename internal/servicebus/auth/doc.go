// Package auth says what clients of Service Bus may do. They show a shared access signature
// (SAS), a JSON Web Token, or a key's id and text by SASL PLAIN.
//
// # Keys
//
// The id of an API key is the SAS key name, and its text is the key. A token names a resource, an
// address; only its path counts. The token is for the entity at that path and for what is below
// it. The key may be bound to entities as well. Microsoft describes the tokens in "Service Bus
// access control with Shared Access Signatures".
//
// Clients of different languages write the same token differently: the order of the fields, the
// case of escapes, and how often the key's name is escaped. The signature is over the resource as
// the token has it, escapes included.
//
// # JSON Web Tokens
//
// A configured issuer, such as Entra ID, signs them. The configuration says which texts in which
// claims give which rights in which tenant. Tokens that were found valid are remembered until
// they expire, because each link of a client may show the same one.
//
// # How rights end
//
// Verifier.Hold gives a context that ends with the key: within a second of its revocation, and
// when it or the token expires. A client renews its tokens before that; a connection then holds
// the new grant and releases the old one.
//
// # Failures
//
// All refusals of keys look alike. Those from one address count as requests without a key do in
// the HTTP API, and beyond that rate the answer is CodeRateLimited.
package auth
