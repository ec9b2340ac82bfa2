// Package messages has the pages about queues, topics, message sessions and webhooks.
package messages
