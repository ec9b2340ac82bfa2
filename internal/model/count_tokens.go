package model

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/quota"
)

const (
	// PathCountTokens is where Anthropic's API counts the tokens of a request for a message.
	PathCountTokens = pathMessages + "/count_tokens"

	countTimeout = 30 * time.Second // of one call
	countCalls   = 2                // of one request, at most
	// maxCountBytes bounds an answer. One that is held to its end reaches nobody if it breaks.
	maxCountBytes = heldBytes
)

// errUncounted is the cause of a call's context when a count has taken too long.
var errUncounted = &forebay.TaskError{Class: forebay.ClassTransient, Code: CodeGatewayTimeout,
	Message: "the provider has not counted the tokens within " + countTimeout.String()}

// CountTokens has the first of the deployments count the tokens of a request for a message. It
// asks one more if the failure may be the deployment's. All of them must take PathCountTokens. The
// body of the response is that of any answer, also of a success.
//
// A count costs nothing, and the provider limits counts apart from messages. So a count needs no
// admission, and what comes of it says nothing about the deployment's quota.
func CountTokens(ctx context.Context, deployments []*Deployment, body []byte, header http.Header) (resp ForwardResponse, err error) {
	for _, d := range deployments[:min(len(deployments), countCalls)] {
		resp, err = d.countTokens(ctx, body, header)
		if err == nil || ctx.Err() != nil || !atFault(err) {
			break
		}
	}
	return resp, err
}

func (d *Deployment) countTokens(ctx context.Context, body []byte, header http.Header) (ForwardResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, countTimeout, errUncounted)
	defer cancel()
	var answer []byte
	resp, err := d.Provider.(Forwarder).Forward(ctx, ForwardRequest{
		Path: PathCountTokens, Body: body, Header: header,
		Begin: func(int, http.Header) error { return nil },
		Write: func(b []byte) error {
			answer = append(answer, b...)
			return nil
		},
	})
	if err == nil {
		resp.Body = answer
	}
	return resp, err
}

// atFault reports whether a failure may be that of the deployment and not of the request.
func atFault(err error) bool {
	if forebay.AsTaskError(err).Class != forebay.ClassPermanent {
		return true
	}
	said, ok := errors.AsType[*failure](err)
	if !ok {
		return false
	}
	denied, _ := said.denial()
	return denied != quota.NotDenied || said.elsewhere // a gateway may not count
}
