package forebay

import "testing"

func TestEncodeJSON(t *testing.T) {
	got, err := EncodeJSON(map[string]string{"a": "<b> & \xff"})
	if want := `{"a":"<b> & \ufffd"}`; err != nil || string(got) != want {
		t.Errorf("%s, want %s: %v", got, want, err)
	}
	if _, err := EncodeJSON(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}
