package oidc

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/signin"
)

// What a browser is told.
var (
	errNotBegun = forebay.Errorf(forebay.CodeUnauthorized, "this sign-in did not begin in this browser, or it began too long ago; begin again")
	errRefused  = forebay.Errorf(forebay.CodeUnauthorized, "this sign-in was refused; begin again")
	errRole     = forebay.Errorf(forebay.CodeForbidden, "you have no role that may sign in here; ask who runs this server")
	errDown     = forebay.Errorf(forebay.CodeUnavailable, "the provider cannot be reached, or does not answer as it should; try again later, or use an API key")
	errBusy     = forebay.Errorf(forebay.CodeTooManyRequests, "too many sign-ins are under way; try again")
)

// leeway is how far this machine's clock may be from the provider's.
const leeway = 2 * time.Minute

// Begin returns the address at the provider where a person signs in. sealed is what the browser
// keeps until then, under a name that state begins with. next is the page that comes afterwards.
// CodeUnavailable: the provider does not answer.
func (c *Client) Begin(ctx context.Context, next string) (address, state, sealed string, err error) {
	p, err := c.metadata.provider(ctx)
	if err != nil {
		return "", "", "", errDown
	}
	if len(next) > MaxNextBytes {
		next = ""
	}
	f := flow{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), Next: next, BegunAt: c.options.Now().Unix()}
	if sealed, err = c.sealed(f); err != nil {
		return "", "", "", err
	}
	return c.config(p).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), f.State, sealed, nil
}

// Finish checks the provider's answer to a sign-in, and begins a session. sealed is what the
// browser kept of its beginning. All errors are *forebay.Error and may be shown, except for
// those of the database.
func (c *Client) Finish(ctx context.Context, sealed string, answer url.Values) (token, next string, err error) {
	f, ok := c.open(sealed)
	if !ok || subtle.ConstantTimeCompare([]byte(f.State), []byte(answer.Get("state"))) != 1 {
		return "", "", errNotBegun
	}
	p, err := c.metadata.provider(ctx)
	if err != nil {
		return "", f.Next, errDown
	}
	if issuer, named := answer["iss"]; named && (len(issuer) != 1 || issuer[0] != c.options.Issuer) || !named && p.NamesIssuer {
		c.refused(ctx, "", refusal{Reason: "the answer is another issuer's"})
		return "", f.Next, errRefused
	}
	code := answer.Get("code")
	if problem := answer.Get("error"); problem != "" || code == "" {
		if !forebay.ValidText(problem, maxReasonBytes) {
			problem = "its answer has no code"
		}
		c.refused(ctx, "", refusal{Reason: "the provider refused: " + problem})
		return "", f.Next, errRefused
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, c.http), 2*providerTimeout)
	defer cancel()
	select {
	case c.exchanges <- struct{}{}:
		defer func() { <-c.exchanges }()
	case <-time.After(exchangeWait):
		return "", f.Next, errBusy
	case <-ctx.Done():
		return "", f.Next, errBusy
	}
	said, subject, err := c.redeem(ctx, p, f, code)
	if err != nil {
		return "", f.Next, err
	}
	token, err = c.admit(ctx, said, subject)
	return token, f.Next, err
}

const (
	// maxReasonBytes bounds an error code of the provider.
	maxReasonBytes = 64
	// maxSubjectBytes bounds a subject (OpenID Connect Core 1.0 section 2).
	maxSubjectBytes = 255
)

// redeem exchanges a code for an ID token and returns what the checked token says, and of whom.
func (c *Client) redeem(ctx context.Context, p *provider, f flow, code string) (said Claims, subject string, err error) {
	refuse := func(reason string) error {
		c.refused(ctx, "", refusal{Reason: reason})
		return errRefused
	}
	tokens, err := c.config(p).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && aboutCode(refused) {
		return nil, "", refuse("the provider does not take the code: " + refused.ErrorCode)
	}
	if err != nil {
		c.metadata.failures.log("it gives no token", err)
		return nil, "", errDown
	}
	raw, _ := tokens.Extra("id_token").(string)
	if raw == "" {
		return nil, "", refuse("there is no ID token")
	}
	verifier := p.Verifier(&oidc.Config{ClientID: c.options.ClientID, Now: func() time.Time { return c.options.Now().Add(-leeway) }})
	id, err := verifier.Verify(ctx, raw)
	if err != nil {
		if strings.Contains(err.Error(), "fetching keys") {
			c.metadata.failures.log("its keys cannot be read", err)
			return nil, "", errDown
		}
		return nil, "", refuse("the ID token is not valid: " + reasonOf(err))
	}
	if err := id.Claims(&said); err != nil || !forebay.ValidText(id.Subject, maxSubjectBytes) {
		return nil, "", refuse("the ID token has no subject, or one that is too long")
	}
	switch azp := said["azp"]; {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1:
		return nil, "", refuse("the ID token has another nonce")
	case id.IssuedAt.After(c.options.Now().Add(leeway)):
		return nil, "", refuse("the ID token was issued in the future; compare the clocks")
	case azp != nil && azp != c.options.ClientID, azp == nil && len(id.Audience) > 1:
		return nil, "", refuse("the ID token is another client's")
	}
	c.complete(ctx, p, tokens, said, id.Subject)
	return said, id.Subject, nil
}

// aboutCode reports whether the provider refused the code, and not this server (RFC 6749 section
// 5.2). Anybody can send a code that is made up.
func aboutCode(e *oauth2.RetrieveError) bool {
	switch e.ErrorCode {
	case "invalid_client", "unauthorized_client":
		return false
	}
	return e.Response.StatusCode < http.StatusInternalServerError && forebay.ValidText(e.ErrorCode, maxReasonBytes)
}

// reasonOf describes an invalid token without its content.
func reasonOf(err error) string {
	if _, ok := errors.AsType[*oidc.TokenExpiredError](err); ok {
		return "it has expired; compare the clocks"
	}
	for _, known := range []string{"different provider", "audience", "signature", "malformed", "not before"} {
		if strings.Contains(err.Error(), known) {
			return known
		}
	}
	return "it cannot be read"
}

// complete adds claims that the ID token lacks from the provider's userinfo endpoint (OpenID
// Connect Core 1.0 section 5.3). Many providers keep them out of the token.
func (c *Client) complete(ctx context.Context, p *provider, tokens *oauth2.Token, said Claims, subject string) {
	named := c.options.NameClaim
	if named == "" {
		named = nameClaims[0]
	}
	if p.UserInfoEndpoint() == "" || said.Find(c.options.RolesClaim) != nil && said.name(named) != "" {
		return
	}
	info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	var more Claims
	if err == nil {
		err = info.Claims(&more)
	}
	if err == nil && info.Subject != subject {
		err = errors.New("it is about another subject")
	}
	if err != nil { // the token alone decides
		c.metadata.failures.log("its userinfo cannot be used", err)
		return
	}
	for name, value := range more {
		if _, ok := said[name]; !ok {
			said[name] = value
		}
	}
}

// kindOf describes a failure of the provider. The errors of these libraries quote answers, which
// can have tokens, so the log gets only what kind of failure it is.
func kindOf(err error) string {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		kind := "it answers " + refused.Response.Status
		if forebay.ValidText(refused.ErrorCode, maxReasonBytes) {
			kind += ", " + refused.ErrorCode
		}
		return kind
	}
	if broken, ok := errors.AsType[*url.Error](err); ok {
		return broken.Err.Error()
	}
	if other, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return fmt.Sprintf("it says that its issuer is %.200q", other.Discovered)
	}
	if errors.Is(err, errMetadata) {
		return err.Error()
	}
	return "its answer is not as it should be"
}

// vouched is what the audit log has of a sign-in.
type vouched struct {
	Issuer  string   `json:"issuer"`
	Subject string   `json:"subject"`
	Roles   []string `json:"roles"`
}

// admit begins a session for a person if one of the roles may sign in.
func (c *Client) admit(ctx context.Context, said Claims, subject string) (token string, err error) {
	name := said.name(c.options.NameClaim)
	if name == "" {
		c.refused(ctx, signin.Person{Name: nameOf("", c.options.Issuer, subject)}.Actor(), refusal{Reason: "the person has no name, or one that is too long", Subject: subject})
		return "", errRefused
	}
	person := signin.Person{Name: nameOf(name, c.options.Issuer, subject)}
	roles, err := c.options.grant(&person, said.Texts(c.options.RolesClaim))
	if err == nil {
		detail, problem := json.Marshal(vouched{c.options.Issuer, subject, roles})
		if problem != nil {
			return "", problem
		}
		person.Detail = string(detail)
		if token, err = c.options.Sessions.AsPerson(ctx, person); err == nil {
			return token, nil
		}
		if forebay.CodeOf(err) != forebay.CodeForbidden {
			return "", err
		}
	}
	reason := err.Error()
	if errors.Is(err, errNoRole) && said.elsewhere(c.options.RolesClaim) {
		reason = fmt.Sprintf("the provider leaves the claim %s out, because it is too long", c.options.RolesClaim)
	}
	c.refused(ctx, person.Actor(), refusal{Reason: reason, Subject: subject})
	return "", errRole
}
