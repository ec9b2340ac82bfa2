package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// function is a function as the Responses API names it. The functions of a namespace are named
// within it.
type function struct{ namespace, name string }

// Bounds of a function in chat completions: of its name, and of its description with that of its
// namespace. The second is that of the strictest servers. maxGrouped bounds the functions of all
// namespaces of a request, and maxNamespaceName the name of one: each function may repeat what its
// namespace says.
const (
	maxChatName        = 64
	maxChatDescription = 1024
	maxGrouped         = 1024
	maxNamespaceName   = 1024 // bytes
)

// names are the names of functions in chat completions, which have no namespaces.
type names struct {
	chat      map[function]string
	functions map[string]function // by name in chat completions
	groups    map[string][]function
}

// newNames names the functions of tools. Those without a namespace keep their names.
func newNames(tools []json.RawMessage) names {
	n := names{chat: map[function]string{}, functions: map[string]function{}, groups: map[string][]function{}}
	for _, raw := range tools {
		if tool := objectOf(raw); text(tool["type"]) == "function" {
			n.add(function{name: text(tool["name"])}, text(tool["name"]))
		}
	}
	for _, raw := range tools {
		tool := objectOf(raw)
		if text(tool["type"]) != "namespace" {
			continue
		}
		for _, raw := range listOf(tool["tools"]) {
			f := function{text(tool["name"]), text(objectOf(raw)["name"])}
			name := f.joined()
			if other, taken := n.functions[name]; taken && other != f {
				name = f.hashed()
			}
			n.add(f, name)
			n.groups[f.namespace] = append(n.groups[f.namespace], f)
		}
	}
	return n
}

func (n names) add(f function, name string) { n.chat[f], n.functions[name] = name, f }

// allowed returns the functions that tools name, which may be namespaces: each once.
func (n names) allowed(tools []json.RawMessage) (list []function) {
	groups, seen := map[string]bool{}, map[function]bool{}
	for _, raw := range tools {
		tool := objectOf(raw)
		named := []function{functionOf(tool)}
		if name := text(tool["name"]); text(tool["type"]) == "namespace" {
			if groups[name] {
				continue
			}
			named, groups[name] = n.groups[name], true
		}
		for _, f := range named {
			if !seen[f] {
				list = append(list, f)
			}
			seen[f] = true
		}
	}
	return list
}

// of returns the name of a function in chat completions. It may be one that is no tool any more.
func (n names) of(f function) string {
	switch name, known := n.chat[f]; {
	case known:
		return name
	case f.namespace == "":
		return f.name
	}
	return f.joined()
}

// function returns the function that a model has called.
func (n names) function(name string) function {
	if f, known := n.functions[name]; known {
		return f
	}
	return function{name: name}
}

// joined returns the usual name of a function of a namespace.
func (f function) joined() string {
	name := strings.TrimSuffix(f.namespace, "__") + "__" + f.name
	if len(name) > maxChatName || strings.ContainsFunc(name, unusual) {
		return f.hashed()
	}
	return name
}

// hashed returns a name for where the usual one is too long, taken or not valid.
func (f function) hashed() string {
	sum := sha256.Sum256([]byte(f.namespace + "\x00" + f.name))
	end := "_" + hex.EncodeToString(sum[:6])
	name := strings.Map(func(c rune) rune {
		if unusual(c) {
			return '_'
		}
		return c
	}, f.name)
	return name[:min(len(name), maxChatName-len(end))] + end
}

// unusual reports whether the names of functions in chat completions cannot have a character.
func unusual(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
}

// functionOf returns the function that a tool, a choice or a call names.
func functionOf(o Object) function { return function{text(o["namespace"]), text(o["name"])} }

// checkNamespace checks a group of tools.
func (r *Request) checkNamespace(param string, tool Object) *Error {
	switch name := text(tool["name"]); {
	case name == "":
		return invalid(param+".name", "missing_required_parameter", "Missing required parameter: '%s.name'.", param)
	case len(name) > maxNamespaceName:
		return invalid(param+".name", "string_above_max_length", "Invalid '%s.name': at most %d bytes.", param, maxNamespaceName)
	}
	tools := listOf(tool["tools"])
	if len(tools) == 0 {
		return invalid(param+".tools", "missing_required_parameter", "Missing required parameter: '%s.tools'.", param)
	}
	if r.grouped += len(tools); r.grouped > maxGrouped {
		return invalid("tools", "array_above_max_length", "Invalid 'tools': at most %d functions in namespaces.", maxGrouped)
	}
	for i, raw := range tools {
		if err := r.checkTool(param+".tools["+string(number(int64(i)))+"]", raw, true); err != nil {
			return err
		}
	}
	return nil
}

// chatFunctions returns the functions that chat completions get for a tool: itself, or those of a
// namespace. What the namespace says of itself goes before what its functions say, if there is
// room for both.
func (n names) chatFunctions(tool Object) (list []json.RawMessage) {
	inner, about := []json.RawMessage{encode(tool)}, ""
	if text(tool["type"]) == "namespace" {
		inner, about = listOf(tool["tools"]), text(tool["description"])
	}
	if utf8.RuneCountInString(about) > maxChatDescription { // there is no room for it in any
		about = ""
	}
	for _, raw := range inner {
		f := picked(objectOf(raw), "name", "description", "parameters", "strict")
		if text(tool["type"]) == "namespace" {
			f["name"] = encode(n.of(function{text(tool["name"]), text(f["name"])}))
		}
		if said := strings.TrimSpace(about + "\n\n" + text(f["description"])); about != "" && utf8.RuneCountInString(said) <= maxChatDescription {
			f["description"] = encode(said)
		}
		list = append(list, encode(Object{"type": encode("function"), "function": encode(f)}))
	}
	return list
}
