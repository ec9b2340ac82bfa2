package model

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
)

// The forms of embeddings in an answer, as a request names them.
const (
	encodingFloat  = "float"
	encodingBase64 = "base64"
)

// askedEncoding returns the value of encoding_format in a request for embeddings: its default is
// floats.
func askedEncoding(b []byte, start int) string {
	asked := encodingFloat
	for m := range membersOf(b, start) {
		if m.key == "encoding_format" && b[m.at] == '"' {
			asked = memberName(b[m.at:m.end])
		}
	}
	return asked
}

// encodeEmbeddings returns an answer with its vectors in the form that was asked for. Servers that
// ignore encoding_format send the other one, which some clients take for a shorter vector. All
// other bytes stay. ok is false if a vector is neither. The object must begin at b[start].
func encodeEmbeddings(b []byte, start int, asked string) (body []byte, ok bool) {
	if asked != encodingFloat && asked != encodingBase64 {
		return b, true
	}
	var edits []splice
	for data := range membersOf(b, start) {
		if data.key != "data" || b[data.at] != '[' {
			continue
		}
		for at := range elementsOf(b, data.at) {
			if b[at] != '{' {
				continue
			}
			for m := range membersOf(b, at) {
				if m.key != "embedding" || (b[m.at] == '[') == (asked == encodingFloat) {
					continue
				}
				text, ok := recode(b, m)
				if !ok {
					return nil, false
				}
				edits = append(edits, splice{m.at, m.end, text})
			}
		}
	}
	if len(edits) == 0 {
		return b, true
	}
	return spliced(b, edits), true
}

// recode returns the other form of a vector.
func recode(b []byte, m jsonMember) (string, bool) {
	if b[m.at] == '"' {
		return decodeVector(memberName(b[m.at:m.end]))
	}
	if b[m.at] != '[' {
		return "", false
	}
	var raw []byte
	for at, end := range elementsOf(b, m.at) {
		f, err := strconv.ParseFloat(string(b[at:end]), 32)
		if err != nil {
			return "", false
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(f)))
	}
	return `"` + base64.StdEncoding.EncodeToString(raw) + `"`, true
}

// decodeVector writes the floats of a vector in base64 as a list.
func decodeVector(encoded string) (string, bool) {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw)%4 != 0 {
		return "", false
	}
	list := append(make([]byte, 0, 4*len(raw)), '[')
	for i := 0; i < len(raw); i += 4 {
		f := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return "", false
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendFloat(list, f, 'g', -1, 32)
	}
	return string(append(list, ']')), true
}
