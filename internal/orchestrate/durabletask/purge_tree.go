package durabletask

import (
	"context"
	"errors"
	"slices"

	"github.com/dapr/durabletask-go/api"
	"github.com/dapr/durabletask-go/api/protos"

	"github.com/forebayhq/forebay"
)

// The engine's recursive purge follows the ids that a history names as children. An instance that
// tries to call itself names its own, and the engine would never come to an end. Or it names that
// of an instance which somebody else has started.

// purgeTree deletes an instance, its sub-orchestrations, and theirs. If one of them is not over
// nothing is deleted, unless by force.
func (h *taskHub) purgeTree(ctx context.Context, id string, force bool) (*protos.PurgeInstancesResponse, error) {
	answer := &protos.PurgeInstancesResponse{}
	tree, seen := []string{id}, map[string]bool{id: true} // an id can be used again, as that of a grandchild
	for i := 0; i < len(tree); i++ {
		children, err := h.childrenOf(ctx, tree[i], seen, force)
		if err != nil && (i == 0 || forebay.CodeOf(err) != forebay.CodeNotFound) { // others may purge at the same time
			return answer, err
		}
		tree = append(tree, children...)
	}
	for i, id := range slices.Backward(tree) {
		n, err := h.purge(ctx, id, force, i == 0) // the callers of all others are purged next
		if err != nil && (i == 0 || !errors.Is(err, api.ErrInstanceNotFound)) {
			return answer, err
		}
		answer.DeletedInstanceCount += int32(n)
	}
	return answer, nil
}

// childrenOf returns the sub-orchestrations of an instance that were not seen yet. The instance
// must be over, unless by force.
func (h *taskHub) childrenOf(ctx context.Context, id string, seen map[string]bool, force bool) (children []string, err error) {
	row, err := h.service.Row(ctx, h.name, id)
	if err != nil {
		return nil, err
	}
	if !force && !row.Status.Terminal() {
		return nil, api.ErrNotCompleted
	}
	events, err := h.service.Events(ctx, row.No)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		called := e.GetChildWorkflowInstanceCreated().GetInstanceId()
		if called == "" || seen[called] {
			continue
		}
		child, err := h.service.Row(ctx, h.name, called)
		switch {
		case err == nil && child.ParentID == id:
			seen[called] = true
			children = append(children, called)
		case err != nil && forebay.CodeOf(err) != forebay.CodeNotFound:
			return nil, err
		}
	}
	return children, nil
}
