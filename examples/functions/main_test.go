package main

import "context"

func Example() {
	if err := run(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// succeeded {"words":5} after 2 attempts
	// a number is refused: input: must be a string
}
