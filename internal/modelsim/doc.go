// Package modelsim is a model simulator. Its deployments answer, count quotas, throttle, slow
// down and break as real ones do. They need no account, no money and, in a process, no network.
//
// A [Service] is one deployment. Its [Meter] counts calls against a [Quota] in the way of a
// provider. Its [Script] says which faults hold when. It reports what it saw as [Stats]. All
// three are given the time and never ask for it, so a simulation can drive them through hours in
// a moment.
//
// Answers are prose of a drawn length, which means nothing, or real work on the words of the
// prompt. The work is extractive summaries, labels by keywords, sentiment by a lexicon, entities
// by patterns, structured output, and embeddings of hashed n-grams. Random draws come from
// seeds, so the same request gets the same answer.
//
// [Server] serves deployments over HTTP in the shapes of OpenAI, Azure OpenAI and Anthropic;
// "forebay sim" runs it. [Provider] is the deployment in this process that the provider "sim" of
// a configuration names. [TestServer] is a Server whose calls a test decides about.
package modelsim
