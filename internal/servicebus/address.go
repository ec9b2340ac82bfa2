package servicebus

import (
	"net/url"
	"strings"
)

// The nodes besides entities. Clients write them in any letter case.
const (
	nodeCBS        = "$cbs"
	nodeManagement = "$management"
)

// node is what the address of a link names.
type node struct {
	path       string // of an entity, as its client wrote it; "": the namespace
	management bool   // the entity's management node
	cbs        bool   // the node for tokens
}

// parseAddress reads the address of a link or an audience. Clients write "entity", "/entity"
// with escapes, or a URI whose host does not matter.
func parseAddress(address string) node {
	path := pathOf(address)
	if strings.EqualFold(path, nodeCBS) {
		return node{cbs: true}
	}
	if rest, found := cutSuffixFold(path, nodeManagement); found && (rest == "" || strings.HasSuffix(rest, "/")) {
		return node{path: strings.Trim(rest, "/"), management: true}
	}
	return node{path: path}
}

// transferDeadLetters ends the path of the transfer dead-letter subqueue of an entity. It is
// always empty: a message is forwarded in the transaction that stores it, and one that cannot
// be is dead-lettered like others. Tools of Service Bus look into both subqueues.
const transferDeadLetters = "/$transfer/$deadletterqueue"

// entity returns the path of the node's entity, and whether the node is the entity's transfer
// dead-letter subqueue.
func (n node) entity() (path string, transfer bool) {
	return cutSuffixFold(n.path, transferDeadLetters)
}

// pathOf returns the path of an address without the slashes around it.
func pathOf(address string) string {
	if _, rest, found := strings.Cut(address, "://"); found {
		_, address, _ = strings.Cut(rest, "/")
	}
	if unescaped, err := url.PathUnescape(address); err == nil {
		address = unescaped
	}
	return strings.Trim(address, "/")
}

func cutSuffixFold(s, suffix string) (rest string, found bool) {
	at := len(s) - len(suffix)
	if at < 0 || !strings.EqualFold(s[at:], suffix) {
		return s, false
	}
	return s[:at], true
}
