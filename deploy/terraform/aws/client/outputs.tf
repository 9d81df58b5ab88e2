output "region" {
  description = "Where this instance is."
  value       = var.region
}

output "function_name" {
  description = "The function's name."
  value       = aws_lambda_function.client.function_name
}

output "queue_url" {
  description = "The queue of events of minutes in which something failed."
  value       = aws_sqs_queue.undelivered.url
}
