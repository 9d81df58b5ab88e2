resource "aws_scheduler_schedule" "minute" {
  name        = var.name
  description = "Each full minute: which checks are due in it is up to the client."

  # `rate(1 minute)` would begin at whatever second this was created; windows are of full minutes.
  schedule_expression          = "cron(* * * * ? *)"
  schedule_expression_timezone = "UTC"

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = aws_lambda_function.client.arn
    role_arn = aws_iam_role.scheduler.arn
    # As it is: jsonencode() would write < and > as \u003c and \u003e, and the scheduler would not know its own keyword.
    input = "{\"time\": \"<aws.scheduler.scheduled-time>\"}"

    retry_policy {
      maximum_event_age_in_seconds = 60
      maximum_retry_attempts       = 2
    }

    dead_letter_config {
      arn = aws_sqs_queue.undelivered.arn
    }
  }
}
