package blob

import (
	"strconv"
	"strings"

	"github.com/forebayhq/forebay"
)

// keyPrefix begins every key, so that a sweep of a shared bucket sees only what is Forebay's.
const keyPrefix = "t/"

// maxKeyBytes keeps a key within one file name of a local folder.
const maxKeyBytes = 200

// Key returns the key of one payload of a job: "t/<tenant number>/<job id>/<name>".
func Key(tenant int64, jobID, name string) string {
	return keyPrefix + strconv.FormatInt(tenant, 10) + "/" + jobID + "/" + name
}

// ValidKey reports whether key is valid. A key begins with "t/" and has segments of A-Z a-z 0-9 _
// - joined by single slashes. It has at most 200 bytes.
func ValidKey(key string) bool {
	if len(key) > maxKeyBytes || !strings.HasPrefix(key, keyPrefix) {
		return false
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" {
			return false
		}
		for i := range len(segment) {
			c := segment[i]
			switch {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			default:
				return false
			}
		}
	}
	return true
}

func checkKey(key string) error {
	if ValidKey(key) {
		return nil
	}
	return forebay.Errorf(forebay.CodeInternal, "a payload key is malformed")
}
