"""A worker of the queue route: messages in, jobs through the start fence, handlers called, results back."""
