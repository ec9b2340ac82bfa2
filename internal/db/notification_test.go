package db

import (
	"reflect"
	"strings"
	"testing"
)

// Kinds of words of each reach.
var (
	wordPlain  = NewWordKind('1', ToAll)
	wordDetail = NewWordKind('2', ToAllFirst)
	wordAgain  = NewWordKind('3', ToAllAgain)
	wordOwn    = NewWordKind('4', ToWriters)
)

func TestNotificationsAsWords(t *testing.T) {
	n := &Notification{Lost: true}
	for _, w := range []Word{{wordPlain, 4, 0}, {wordDetail, 4, 85}, {wordDetail, 4, 101}, {wordChanged, 1, 0}, {wordAgain, 99, 0}, {WordSettings, 0, 0}} {
		n.add(w.Kind, w.A, w.B, 1000+w.A)
	}
	n.addMany('5')
	if got := decodeNotification(strings.Join(n.encode(), "")); !reflect.DeepEqual(got, n) {
		t.Errorf("read %+v, told %+v", got, n)
	}
	if got := decodeNotification("z1 w0:0:0:"); !got.Lost || !got.Has('w') {
		t.Errorf("of words that it does not know it made %+v", got)
	}
	n.add(wordOwn, 0, 0, 7)
	if got := decodeNotification(strings.Join(n.encode(), "")); got.Has(wordOwn) {
		t.Error("other processes hear what is for the writers of this one")
	}
	if first := strings.Join(n.encode(), ""); strings.LastIndex(first, " 2") > strings.Index(first, " 1") {
		t.Errorf("details come late: %q", first)
	}
	if again := n.again(); len(again.Words) != 1 || !again.Has(wordAgain) || !again.Lost {
		t.Errorf("%+v is told again", again)
	}
	n.add(wordPlain, 4, 0, 2000)
	n.add(wordPlain, 4, 0, 500)
	if at := n.Words[Word{wordPlain, 4, 0}]; at != 500 {
		t.Errorf("the earliest time is %d", at)
	}
}

// What is told after a commit is bounded, whatever has happened.
func TestNotificationsAreBounded(t *testing.T) {
	n := &Notification{}
	for i := range int64(20_000) {
		part := &Notification{}
		part.add(wordPlain, -i, 0, 1e12)
		part.add(wordChanged, i, 0, 0)
		part.add(wordDetail, i%2, i, 0)
		n.addAll(part)
	}
	if payloads := n.encode(); len(payloads) > 20 || !n.Many[wordPlain] || !n.Many[wordDetail] || !n.Many[wordChanged] {
		t.Errorf("%d payloads, too many of %v", len(payloads), n.Many)
	}
}

func TestChannels(t *testing.T) {
	long := strings.Repeat("s", 60)
	seen := map[string]string{}
	for _, path := range []string{"forebay", "skewed,pg_catalog", long, long + "t", `"Name ""quoted"""`, `"Name \quoted"`} {
		channel := channelOf("forebay_", path)
		if other, taken := seen[channel]; taken || len(channel) > maxChannelBytes || strings.ContainsAny(channel, `"\`) {
			t.Errorf("%q has the channel %q, as has %q", path, channel, other)
		}
		seen[channel] = path
	}
	if channelOf("forebay_", "forebay") != "forebay_forebay" {
		t.Error("processes of the version before would not be heard")
	}
}
