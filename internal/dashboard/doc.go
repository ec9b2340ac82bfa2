// Package dashboard serves the pages that operators open in a browser. It owns all addresses
// below a base path, is a surface of package api, and knows its callers by the session in a
// cookie.
//
// The pages themselves are in the packages below screens. Package kit has what they share.
//
// # What protects it
//
// An API key is sent once, to sign in. The cookie holds a random value that only this server
// knows, by its hash; scripts cannot read it. GET never changes anything; other methods are
// refused unless they come from a page of the same origin. The Content-Security-Policy allows
// no inline code and no other host. All values are escaped by html/template; nothing that a
// model wrote becomes HTML.
package dashboard
