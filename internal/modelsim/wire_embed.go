package modelsim

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// respondEmbeddings answers a call for embeddings. The error is as of respond.
func (c *httpCall) respondEmbeddings(e *ending) error {
	if err := c.wait(time.Now(), 0); err != nil {
		return err
	}
	vectors, err := embedAll(c.r.Context(), c.request.inputTexts(), cmp.Or(c.request.Dimensions, DefaultDimensions))
	if err != nil {
		return errGone
	}
	body := embedBody(vectors, c.request.EncodingFormat, c.deployment.Model, c.prompt)
	c.quotaHeaders(nil)
	switch e.outcome {
	case Malformed:
		return c.send(http.StatusOK, body[:len(body)/2])
	case Cut:
		c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if err := c.send(http.StatusOK, body[:len(body)/2]); err != nil {
			return err
		}
		return errBroken
	}
	return c.send(http.StatusOK, body)
}

// embedBody is the answer that holds the vectors, for a prompt of that many tokens.
func embedBody(vectors [][]float32, encoding, model string, prompt int) []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, v := range vectors {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"object":"embedding","index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `,"embedding":`...)
		if encoding == "base64" {
			raw := make([]byte, 4*len(v))
			for j, f := range v {
				binary.LittleEndian.PutUint32(raw[4*j:], math.Float32bits(f))
			}
			b = append(append(append(b, '"'), base64.StdEncoding.EncodeToString(raw)...), '"')
		} else {
			b = append(b, '[')
			for j, f := range v {
				if j > 0 {
					b = append(b, ',')
				}
				b = strconv.AppendFloat(b, float64(f), 'g', -1, 32)
			}
			b = append(b, ']')
		}
		b = append(b, '}')
	}
	return fmt.Appendf(b, `],"model":%s,"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, quoted(model), prompt, prompt)
}
