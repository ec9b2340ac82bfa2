package client

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Client's methods come from types that it embeds. Two of them with a method of one name would
// hide both, without an error of the compiler.
func TestClientHasAllItsMethods(t *testing.T) {
	data, err := os.ReadFile("testdata/client_methods.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(data)), "\n")
	client := reflect.TypeFor[*Client]()
	var got []string
	for i := range client.NumMethod() {
		method := client.Method(i)
		got = append(got, method.Name+strings.TrimPrefix(method.Type.String(), "func"))
	}
	for _, method := range want {
		if !slices.Contains(got, method) {
			t.Errorf("Client has lost %s", method)
		}
	}
	for _, method := range got {
		if !slices.Contains(want, method) {
			t.Errorf("testdata/client_methods.txt lacks %s", method)
		}
	}
}
