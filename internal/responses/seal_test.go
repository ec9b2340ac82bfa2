package responses

import (
	"bytes"
	"sync"
	"testing"
)

// All who ask at once for the secret get the same one, and so does who asks later.
func TestSecretIsMadeOnce(t *testing.T) {
	fixture.WithStores(t, func(t *testing.T, s *stores) {
		var asking sync.WaitGroup
		secrets := make([][]byte, 8)
		for i := range secrets {
			asking.Go(func() {
				var err error
				if secrets[i], err = s.Responses.Secret(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		asking.Wait()
		for _, secret := range secrets {
			if len(secret) != secretBytes || !bytes.Equal(secret, secrets[0]) {
				t.Errorf("%x and %x", secret, secrets[0])
			}
		}
	})
}
