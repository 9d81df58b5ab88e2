output "functions" {
  description = "The function of each region, for `aws lambda invoke`."
  value       = { for one in [module.first, module.second] : one.region => one.function_name }
}

output "undelivered" {
  description = "The queue of each region that holds the events of minutes in which something failed."
  value       = { for one in [module.first, module.second] : one.region => one.queue_url }
}
