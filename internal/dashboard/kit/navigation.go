package kit

import "strings"

// Group is a part of the navigation.
type Group struct {
	Name  string
	Links []Link
}

// Link is an entry of the navigation.
type Link struct {
	Name, Path string
	Key        string // goes there after g
	Operators  bool   // only for those who see every tenant
	Operate    bool   // only for those who may operate a tenant, or see every one
	Current    bool
}

// groups is the navigation, in the order of a bad night.
var groups = []Group{
	{"Now", []Link{{Name: "Now", Path: "/", Key: "n"}, {Name: "Backlog", Path: "/backlog", Key: "b"}, {Name: "Calls", Path: "/calls", Key: "c"}}},
	{"Jobs", []Link{
		{Name: "Jobs", Path: "/jobs", Key: "j"}, {Name: "Dead letters", Path: "/dead-letters", Key: "d", Operate: true}, {Name: "Retries", Path: "/retries", Key: "r"},
		{Name: "Batches", Path: "/batches", Key: "a"}, {Name: "Responses", Path: "/responses"}, {Name: "Sessions", Path: "/sessions"},
	}},
	{"Models", []Link{
		{Name: "Deployments", Path: "/deployments", Key: "m", Operators: true}, {Name: "Usage", Path: "/usage", Key: "u"},
		{Name: "Tenants", Path: "/tenants", Key: "t", Operators: true},
	}},
	{"Messages", []Link{{Name: "Queues", Path: "/queues", Key: "q"}, {Name: "Topics", Path: "/topics"}, {Name: "Webhooks", Path: "/webhooks", Key: "w", Operate: true}}},
	{"Flows", []Link{{Name: "Orchestrations", Path: "/orchestrations", Key: "o"}, {Name: "Workflows", Path: "/workflows"}}},
	{"Documents", []Link{{Name: "Documents", Path: "/documents"}, {Name: "Search", Path: "/search", Key: "s"}}},
	{"System", []Link{
		{Name: "Processes", Path: "/processes", Key: "p", Operators: true}, {Name: "Audit", Path: "/audit", Operators: true},
		{Name: "Keys", Path: "/keys", Key: "k", Operators: true}, {Name: "Sign-ins", Path: "/sign-ins", Operators: true},
	}},
}

// navigation returns the groups that the caller may open.
func (r *Request) navigation(section string) []Group {
	var list []Group
	for _, g := range groups {
		shown := Group{Name: g.Name}
		for _, l := range g.Links {
			if l.Operators && !r.Operator() || l.Operate && !r.Operates() {
				continue
			}
			l.Current = l.Path == section || section != "" && l.Path != "/" && strings.HasPrefix(section, l.Path+"/")
			shown.Links = append(shown.Links, l)
		}
		if len(shown.Links) > 0 {
			list = append(list, shown)
		}
	}
	return list
}
