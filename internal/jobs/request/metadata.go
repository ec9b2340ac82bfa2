package request

import (
	"encoding/json"

	"github.com/forebayhq/forebay"
)

// EncodeMetadata checks a client's metadata and returns what is stored of it; nil for none.
func EncodeMetadata(metadata map[string]string) ([]byte, error) {
	if len(metadata) == 0 {
		return nil, nil
	}
	if len(metadata) > forebay.MaxMetadataEntries {
		return nil, forebay.Invalid("metadata", "has %d entries; the limit is %d", len(metadata), forebay.MaxMetadataEntries)
	}
	for key := range metadata {
		if !forebay.ValidText(key, forebay.MaxMetadataKeyBytes) {
			return nil, forebay.Invalid("metadata", "has a key that is not 1 to %d bytes of text without control characters", forebay.MaxMetadataKeyBytes)
		}
	}
	b, err := json.Marshal(metadata)
	if err == nil && len(b) > forebay.MaxMetadataBytes {
		return nil, forebay.Invalid("metadata", "is %d bytes as JSON; the limit is %d", len(b), forebay.MaxMetadataBytes)
	}
	return b, err
}

// DecodeMetadata returns the metadata of which that is stored; none for nil.
func DecodeMetadata(b []byte) map[string]string {
	if len(b) == 0 { // as most jobs have it
		return map[string]string{}
	}
	metadata := map[string]string{}
	_ = json.Unmarshal(b, &metadata) // we encoded it ourselves
	return metadata
}
