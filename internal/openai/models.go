package openai

import (
	"encoding/json"
	"net/http"

	"github.com/forebayhq/forebay/internal/api"
)

// modelObject is the schema Model of OpenAI's OpenAPI file.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (m Model) object() modelObject {
	return modelObject{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: m.OwnedBy}
}

func (a *API) listModels(r *api.SurfaceRequest) error {
	list := struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{}}
	for _, m := range a.Models() {
		list.Data = append(list.Data, m.object())
	}
	return answer(r, list)
}

func (a *API) getModel(r *api.SurfaceRequest) error {
	name := r.PathValue("model")
	for _, m := range a.Models() {
		if m.Name == name {
			return answer(r, m.object())
		}
	}
	return unknownModel(name)
}

// answer writes a JSON object.
func answer(r *api.SurfaceRequest, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	r.Writer.Header().Set("Content-Type", "application/json")
	r.Writer.WriteHeader(http.StatusOK)
	_, err = r.Writer.Write(append(body, '\n'))
	return err
}
