package atom

import (
	"reflect"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
)

const queueEntry = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">%</QueueDescription></content></entry>`

func entryOf(inner string) string { return strings.Replace(queueEntry, "%", inner, 1) }

func TestHostileXMLIsRefused(t *testing.T) {
	laughs := `<!DOCTYPE lolz [<!ENTITY lol "lol">` + strings.Repeat(`<!ENTITY lol2 "&lol;&lol;&lol;">`, 10) + `]>`
	for name, body := range map[string]string{
		"nothing":                  "",
		"no XML":                   "{}",
		"billion laughs":           laughs + entryOf("<UserMetadata>&lol2;</UserMetadata>"),
		"external entity":          `<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/passwd">]>` + entryOf("<UserMetadata>&x;</UserMetadata>"),
		"external document type":   `<!DOCTYPE e SYSTEM "http://127.0.0.1/x.dtd">` + entryOf(""),
		"undeclared entity":        entryOf("<UserMetadata>&x;</UserMetadata>"),
		"document type inside":     entryOf("<!DOCTYPE x>"),
		"stylesheet":               `<?xml-stylesheet href="x"?>` + entryOf(""),
		"too deep":                 entryOf(strings.Repeat("<a>", 20) + strings.Repeat("</a>", 20)),
		"deep without an end":      strings.Repeat("<a>", 50_000),
		"too many elements":        entryOf(strings.Repeat("<a/>", 5000)),
		"too many attributes":      entryOf("<a" + strings.Repeat(` b="1"`, 5000) + "/>"),
		"two documents":            entryOf("") + entryOf(""),
		"text behind":              entryOf("") + "<",
		"not closed":               strings.TrimSuffix(entryOf(""), "</entry>"),
		"closed twice":             entryOf("") + "</entry>",
		"wrongly closed":           entryOf("<a></b>"),
		"another encoding":         `<?xml version="1.0" encoding="utf-16"?>` + entryOf(""),
		"bytes of UTF-16":          "\xff\xfe<\x00e\x00",
		"invalid UTF-8":            entryOf("<UserMetadata>\xff</UserMetadata>"),
		"a character that is none": entryOf("<UserMetadata>&#0;</UserMetadata>"),
		"another root":             "<feed/>",
	} {
		if e, err := parseEntry([]byte(body)); forebay.CodeOf(err) != forebay.CodeInvalidRequest {
			t.Errorf("%s: %+v, %v", name, e, err)
		} else if strings.Contains(err.Error(), "passwd") || strings.Contains(err.Error(), "lol") {
			t.Errorf("%s: the error repeats the body: %v", name, err)
		}
	}
}

func TestTheFormsOfClientsAreRead(t *testing.T) {
	inner := "<LockDuration>PT45S</LockDuration><RequiresSession>true</RequiresSession>"
	for name, body := range map[string]string{
		"plain":           entryOf(inner),
		"declaration":     `<?xml version="1.0" encoding="UTF-8"?>` + "\n<!-- x -->" + entryOf(inner),
		"byte order mark": "\ufeff" + entryOf(inner),
		"prefixes":        `<a:entry xmlns:a="http://www.w3.org/2005/Atom"><a:content><b:QueueDescription xmlns:b="urn:x"><b:LockDuration>PT45S</b:LockDuration><b:RequiresSession>true</b:RequiresSession></b:QueueDescription></a:content></a:entry>`,
		"another order":   entryOf("<RequiresSession> true </RequiresSession><Unknown><a/></Unknown><LockDuration>\nPT45S</LockDuration>"),
		"character data":  entryOf("<LockDuration><![CDATA[PT45S]]></LockDuration><RequiresSession>1</RequiresSession>"),
	} {
		e, err := parseEntry([]byte(body))
		if err != nil || e.Content.Queue == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s, _, err := e.Content.Queue.settings(Queue)
		if err != nil || s.LockSeconds != 45 || !isTrue(s.RequiresSession) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

func TestWrongElementsAreNamed(t *testing.T) {
	long := strings.Repeat("x", 300)
	for inner, want := range map[string]string{
		"<LockDuration>1 minute</LockDuration>":                                                       "LockDuration: is not an ISO 8601 duration",
		"<LockDuration>PT0S</LockDuration>":                                                           "LockDuration: must be longer than 0",
		"<RequiresSession>yes</RequiresSession>":                                                      "RequiresSession: must be true or false",
		"<MaxDeliveryCount>0</MaxDeliveryCount>":                                                      "MaxDeliveryCount: goes from 1 to 2000",
		"<MaxDeliveryCount>99999999999999999999</MaxDeliveryCount>":                                   "MaxDeliveryCount: goes from 1 to 2000",
		"<MaxSizeInMegabytes>-1</MaxSizeInMegabytes>":                                                 "MaxSizeInMegabytes: goes from 1",
		"<Status>Deleting</Status>":                                                                   "Status: must be Active",
		"<ForwardTo>sb://host</ForwardTo>":                                                            "ForwardTo: must be the URI or the name",
		"<ForwardTo>://%zz</ForwardTo>":                                                               "ForwardTo: must be the URI or the name",
		"<ForwardTo>" + long + long + "</ForwardTo>":                                                  "ForwardTo: must be the URI or the name",
		"<MaxMessageSizeInKilobytes>999999</MaxMessageSizeInKilobytes>":                               "MaxMessageSizeInKilobytes: goes from 1 to 102400",
		"<AuthorizationRules>" + strings.Repeat("<AuthorizationRule/>", 13) + "</AuthorizationRules>": "AuthorizationRules: may be at most 12",
		"<AuthorizationRules><AuthorizationRule><Rights><AccessRights>All</AccessRights></Rights><KeyName>k</KeyName></AuthorizationRule></AuthorizationRules>": "AuthorizationRules: has the rights",
		"<AuthorizationRules><AuthorizationRule></AuthorizationRule></AuthorizationRules>":                                                                      "AuthorizationRules: needs a KeyName",
		"<AuthorizationRules><AuthorizationRule><KeyName>" + long + "</KeyName></AuthorizationRule></AuthorizationRules>":                                       "AuthorizationRules: has names and keys of at most",
		"<AuthorizationRules><AuthorizationRule><KeyName>k</KeyName><CreatedTime>now</CreatedTime></AuthorizationRule></AuthorizationRules>":                    "AuthorizationRules: has times of RFC 3339",
	} {
		e, err := parseEntry([]byte(entryOf(inner)))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = e.Content.Queue.settings(Queue); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, expected %s", inner, err, want)
		}
	}
}

func TestLongTimesSetNoLimit(t *testing.T) {
	for _, d := range []string{"P10675199DT2H48M5.4775807S", "P101Y", "PT256204778H48M5.4775807S"} {
		e, err := parseEntry([]byte(entryOf("<DefaultMessageTimeToLive>" + d + "</DefaultMessageTimeToLive><AutoDeleteOnIdle>" + d + "</AutoDeleteOnIdle>")))
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := e.Content.Queue.settings(Queue)
		if err != nil || s.DefaultTTLSeconds != 0 || s.AutoDeleteOnIdleSeconds != 0 {
			t.Errorf("%s: %+v, %v", d, s, err)
		}
	}
}

func TestPathsAreReadFromTheEnd(t *testing.T) {
	for path, want := range map[string]target{
		"/$Resources/Queues":                         {resource: queues},
		"/$resources/topics/":                        {resource: topics},
		"/$namespaceinfo":                            {resource: theNamespace},
		"/q":                                         {aQueueOrTopic, "q", "", ""},
		"/a/b/c":                                     {aQueueOrTopic, "a/b/c", "", ""},
		"/t/Subscriptions":                           {subscriptions, "t", "", ""},
		"/a/b/SUBSCRIPTIONS/s":                       {aSubscription, "a/b", "s", ""},
		"/a/b/subscriptions/s/Rules":                 {rules, "a/b", "s", ""},
		"/a/b/subscriptions/s/Rules/":                {rules, "a/b", "s", ""},
		"/a/subscriptions/s/rules/$Default":          {aRule, "a", "s", "$Default"},
		"/a/subscriptions/rules":                     {aSubscription, "a", "rules", ""},
		"/subscriptions/s":                           {aQueueOrTopic, "subscriptions/s", "", ""},
		"/a/subscriptions/subscriptions/rules/rules": {aRule, "a", "subscriptions", "rules"},
		"/":      {aQueueOrTopic, "", "", ""},
		"/rules": {aQueueOrTopic, "rules", "", ""},
	} {
		if got := targetOf(path); got != want {
			t.Errorf("%s is %+v, expected %+v", path, got, want)
		}
	}
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte(entryOf("<LockDuration>PT45S</LockDuration><AuthorizationRules><AuthorizationRule/></AuthorizationRules>")))
	f.Add([]byte(`<entry><content><RuleDescription><Filter xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="SqlFilter"><SqlExpression>a=@b</SqlExpression><Parameters><KeyValueOfstringanyType><Key>@b</Key><Value i:type="x:int">1</Value></KeyValueOfstringanyType></Parameters></Filter></RuleDescription></content></entry>`))
	f.Add([]byte(`<!DOCTYPE x [<!ENTITY a "b">]><entry>&a;</entry>`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := parseEntry(body)
		if err != nil {
			if forebay.CodeOf(err) != forebay.CodeInvalidRequest {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		for kind, d := range map[Kind]*description{Queue: e.Content.Queue, Topic: e.Content.Topic, Subscription: e.Content.Subscription} {
			if d == nil {
				continue
			}
			s, k, err := d.settings(kind)
			if err != nil {
				continue
			}
			if err := k.adopt(&s, nil); err != nil {
				t.Error(err)
			}
			attributes, err := k.attributes()
			if again := keptOf(attributes); err != nil || !reflect.DeepEqual(k, again) && k.AuthorizationRules == nil {
				t.Errorf("%q keeps %+v, which reads as %+v (%v)", body, k, again, err)
			}
		}
		if e.Content.Rule != nil {
			_, _ = e.Content.Rule.settings()
		}
	})
}
