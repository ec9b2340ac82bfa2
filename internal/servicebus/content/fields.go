package content

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// field is an element of an encoded list.
type field struct {
	raw   []byte // encoded
	value any
}

// at returns the value of a field; nil: it is null or not there.
func at(fields []field, i int) any {
	if i < len(fields) {
		return fields[i].value
	}
	return nil
}

// pair is an entry of an encoded map whose key is text.
type pair struct {
	key   string
	raw   []byte // encoded, with the key
	value any
}

var errElements = errors.New("the elements of a list or a map are not as many as it says")

// elements returns how many elements an encoded list or map has, and these; nil has none.
func elements(value []byte) (count int, rest []byte, err error) {
	if len(value) == 0 {
		return 0, nil, nil
	}
	switch value[0] {
	case wire.ConstructorList8, wire.ConstructorMap8:
		if len(value) < 3 {
			return 0, nil, errElements
		}
		return int(value[2]), value[3:], nil
	case wire.ConstructorList32, wire.ConstructorMap32:
		if len(value) < 9 {
			return 0, nil, errElements
		}
		n := binary.BigEndian.Uint32(value[5:])
		if n > uint32(len(value)) { // each takes a byte at least
			return 0, nil, errElements
		}
		return int(n), value[9:], nil
	}
	return 0, nil, nil // an empty list
}

func fieldsOf(value []byte) ([]field, error) {
	n, rest, err := elements(value)
	if err != nil || n == 0 && len(rest) == 0 {
		return nil, err
	}
	fields := make([]field, 0, min(n, propertyFields))
	for range n {
		v, after, err := wire.Decode(rest)
		if err != nil {
			return nil, err
		}
		fields = append(fields, field{rest[:len(rest)-len(after)], v})
		rest = after
	}
	if len(rest) > 0 {
		return nil, errElements
	}
	return fields, nil
}

// pairsOf returns the entries of a map. Keys are strings or symbols, and none is there twice
// (1.6.23).
func pairsOf(value []byte) ([]pair, error) {
	n, rest, err := elements(value)
	if err != nil || n == 0 && len(rest) == 0 {
		return nil, err
	}
	if n%2 != 0 {
		return nil, errElements
	}
	pairs := make([]pair, 0, min(n/2, 64))
	seen := make(map[string]bool, min(n/2, 64))
	for range n / 2 {
		k, after, err := wire.Decode(rest)
		if err != nil {
			return nil, err
		}
		key, err := keyOf(k)
		if err == nil && seen[key] {
			err = errors.New("a map has a key twice")
		}
		if err != nil {
			return nil, err
		}
		seen[key] = true
		v, after, err := wire.Decode(after)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair{key, rest[:len(rest)-len(after)], v})
		rest = after
	}
	if len(rest) > 0 {
		return nil, errElements
	}
	return pairs, nil
}

func keyOf(k any) (string, error) {
	switch k := k.(type) {
	case wire.Symbol:
		return string(k), nil
	case string:
		return k, nil
	}
	return "", fmt.Errorf("a key of annotations or properties is neither text nor a symbol")
}

// compound builds an encoded list or map from encoded elements.
type compound struct {
	elements []byte
	count    int
	err      error
}

func (c *compound) raw(encoded []byte, count int) {
	c.elements = append(c.elements, encoded...)
	c.count += count
}

func (c *compound) value(v any) {
	if c.err == nil {
		c.elements, c.err = wire.Append(c.elements, v)
		c.count++
	}
}

func (c *compound) pair(key, value any) {
	c.value(key)
	c.value(value)
}

// append appends the list or map, whose short and long constructors are given.
func (c *compound) append(dst []byte, short, long byte) ([]byte, error) {
	if size := len(c.elements) + 1; size < 256 && c.count < 256 {
		dst = append(dst, short, byte(size), byte(c.count))
	} else {
		dst = append(dst, long)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.elements)+4))
		dst = binary.BigEndian.AppendUint32(dst, uint32(c.count))
	}
	return append(dst, c.elements...), c.err
}

func (c *compound) appendMap(dst []byte, code uint64) ([]byte, error) {
	return c.append(append(dst, 0x00, wire.ConstructorSmallUlong, byte(code)), wire.ConstructorMap8, wire.ConstructorMap32)
}

func (c *compound) appendList(dst []byte, code uint64) ([]byte, error) {
	return c.append(append(dst, 0x00, wire.ConstructorSmallUlong, byte(code)), wire.ConstructorList8, wire.ConstructorList32)
}
