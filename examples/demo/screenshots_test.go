//go:build screenshots

package main

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/browsertest"
)

// images is where docs/dashboard.md expects its pictures.
const images = "docs/images"

const (
	pictureWidth, pictureHeight = 1280, 800
	maxPicture                  = 150 << 10 // bytes
)

// TestScreenshots takes the pictures of docs/dashboard.md. It runs only by make screenshots.
func TestScreenshots(t *testing.T) {
	o, url := openOffice(t)
	browser := browsertest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- o.work(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-worked; err != nil {
			t.Error(err)
		}
	})
	job, dead := o.subjects(t)
	if err := os.MkdirAll(images, 0o755); err != nil {
		t.Fatal(err)
	}
	page := browser.Open(t)
	for _, p := range []struct {
		name, path string
		dark       bool
	}{
		{"now", "/", false}, {"now-dark", "/", true}, {"backlog", "/backlog", false}, {"jobs", "/jobs", false}, {"job", "/jobs/" + job, false},
		{"dead-letters", "/dead-letters", false}, {"dead-letter", "/dead-letters/default/" + dead, false}, {"deployments", "/deployments", false},
		{"usage", "/usage", false}, {"orchestration", "/orchestrations/reviews-1", false}, {"queues", "/queues", false}, {"search", "/search?q=bread", false},
	} {
		page.Look(pictureWidth, p.dark)
		page.Go(url + "/ui" + p.path)
		page.Wait(`document.readyState === 'complete'`)
		dir := t.TempDir()
		page.Screenshot(dir, p.name)
		whole, err := os.ReadFile(filepath.Join(dir, p.name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		picture, err := shrink(whole)
		if err != nil {
			t.Fatal(err)
		}
		if len(picture) > maxPicture {
			t.Errorf("%s has %d bytes, %d are enough", p.name, len(picture), maxPicture)
		}
		if err := os.WriteFile(filepath.Join(images, p.name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// subjects are a job that succeeded after a retry, and a dead letter.
func (o *office) subjects(t *testing.T) (job, dead string) {
	t.Helper()
	eventually(t, "a dead letter", func(ctx context.Context) (bool, error) {
		for letter, err := range o.client.DeadLetters(forebay.DefaultQueue).List(ctx, forebay.SetAsideFilter{}, 10) {
			dead = letter.JobID
			return true, err
		}
		return false, nil
	})
	eventually(t, "a job that succeeded after a retry", func(ctx context.Context) (bool, error) {
		for j, err := range o.client.List(ctx, forebay.JobFilter{Status: []forebay.Status{forebay.StatusSucceeded}}) {
			if job = j.ID; err != nil || j.Attempt > 1 {
				return true, err
			}
		}
		return false, nil
	})
	return job, dead
}

// shrink cuts the first screen out of a picture and gives it at most 256 colours: the most
// frequent ones. Text on plain ground has few.
func shrink(whole []byte) ([]byte, error) {
	picture, err := png.Decode(bytes.NewReader(whole))
	if err != nil {
		return nil, err
	}
	bounds := picture.Bounds().Intersect(image.Rect(0, 0, pictureWidth, pictureHeight))
	count := map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[picture.At(x, y)]++
		}
	}
	colours := make([]color.Color, 0, len(count))
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	small := image.NewPaletted(bounds, colours[:min(len(colours), 256)])
	draw.Draw(small, bounds, picture, bounds.Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}
