# Something failed: a group was answered by no target, a secret can't be read, the time was up.
resource "aws_cloudwatch_metric_alarm" "failing" {
  alarm_name          = "${var.name}-failing"
  alarm_description   = "In three of five minutes the checks were not all answered. The log of the function says which."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.client.function_name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 1
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topics
  ok_actions          = var.alarm_topics
}

# Nothing happened at all, which no error tells of.
resource "aws_cloudwatch_metric_alarm" "silent" {
  alarm_name          = "${var.name}-silent"
  alarm_description   = "For five minutes the function has not been invoked: look at the schedule and its role."
  namespace           = "AWS/Lambda"
  metric_name         = "Invocations"
  dimensions          = { FunctionName = aws_lambda_function.client.function_name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topics
  ok_actions          = var.alarm_topics
}
