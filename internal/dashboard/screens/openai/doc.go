// Package openai has the pages about batches and responses of OpenAI's API.
package openai
